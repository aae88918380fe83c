# A linear probe of all layers, and the table.
gaam train --cache "$OUT/cache" --runs "$OUT/runs" --attn none --head lbfgs
gaam report "$OUT/runs"
