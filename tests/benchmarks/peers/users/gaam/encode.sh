# Every layer of the encoder, pooled, on disk.
gaam extract --dataset "$DATA" --encoder "$ENCODER" --out "$OUT/cache"
