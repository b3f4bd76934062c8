package parquetfile

import (
	"sync"

	"github.com/klauspost/compress/zstd"
	"github.com/parquet-go/parquet-go/format"
)

// zstdCodec is parquet-go's codec of this name at its fastest level, with encoders that
// all writers of the process share, one a core. Those of parquet-go are a writer's own and
// given up by each collection of garbage: each new one takes 9 MiB, what a short export
// writes in all.
type zstdCodec struct{}

// zstdWindow is how far back an encoder looks, in bytes: more than a page has, but where
// one value is longer.
const zstdWindow = 1 << 20

var zstdEncoder = sync.OnceValue(func() *zstd.Encoder {
	e, err := zstd.NewWriter(nil, zstd.WithEncoderLevel(zstd.SpeedFastest), zstd.WithWindowSize(zstdWindow),
		zstd.WithZeroFrames(true), zstd.WithEncoderCRC(false))
	if err != nil {
		panic(err) // its options are wrong
	}
	return e
})

func (zstdCodec) String() string { return "ZSTD" }

func (zstdCodec) CompressionCodec() format.CompressionCodec { return format.Zstd }

func (zstdCodec) Encode(dst, src []byte) ([]byte, error) {
	return zstdEncoder().EncodeAll(src, dst[:0]), nil
}

func (zstdCodec) Decode(dst, src []byte) ([]byte, error) {
	return zstdDecoder().DecodeAll(src, dst[:0])
}
