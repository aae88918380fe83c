# A linear probe of the last layer, and the table.
gaam train --cache "$OUT/cache" --runs "$OUT/runs" --attn none --head lbfgs --layers 6
gaam report "$OUT/runs"
