# Four mechanisms, ten seeds, and the table.
gaam train --cache "$OUT/cache" --runs "$OUT/runs" --epochs "$EPOCHS" --seeds "$SEEDS" \
  --attn gaam --attn laplace --attn mha --attn none
gaam report "$OUT/runs"
