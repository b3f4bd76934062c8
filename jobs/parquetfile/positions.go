package parquetfile

import (
	"bytes"
	"errors"
	"math/bits"

	"github.com/parquet-go/parquet-go"
)

// Field ids of the columns of a file of positions (Iceberg's Reserved Field IDs).
const (
	PositionsFile = 2147483546 // file_path
	PositionsRow  = 2147483545 // pos
)

// position is a row of a file of positions.
type position struct {
	File string `parquet:"file_path,dict,zstd,id(2147483546)"`
	Row  int64  `parquet:"pos,delta,zstd,id(2147483545)"`
}

// EncodePositions returns a file of position deletes as Iceberg has them (Position Delete
// Files, format version 2): of the data file that tables call url, row i where bit i%64 of
// rows[i/64] is set, in their order.
func EncodePositions(url string, rows []uint64) ([]byte, error) {
	var out bytes.Buffer
	w := parquet.NewGenericWriter[position](&out)
	batch := make([]position, 0, 1024)
	flush := func() error {
		_, err := w.Write(batch)
		batch = batch[:0]
		return err
	}
	for i, word := range rows {
		for ; word != 0; word &= word - 1 {
			if len(batch) == cap(batch) {
				if err := flush(); err != nil {
					return nil, err
				}
			}
			batch = append(batch, position{url, int64(i)*64 + int64(bits.TrailingZeros64(word))})
		}
	}
	err := errors.Join(flush(), w.Close())
	return out.Bytes(), err
}
