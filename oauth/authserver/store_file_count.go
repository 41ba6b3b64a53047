package authserver

import (
	"encoding/binary"
	"strings"

	"go.etcd.io/bbolt"
)

// bucketCounts has the number of the records of each kind, expired or not. It changes with them, in one transaction.
var bucketCounts = []byte("counts")

// countLen is the size of such a number.
const countLen = 8

// prepareCounts counts the records of a file that has no counts yet.
func prepareCounts(tx *bbolt.Tx) error {
	if tx.Bucket(bucketCounts) != nil {
		return nil
	}
	if _, err := tx.CreateBucket(bucketCounts); err != nil {
		return err
	}
	return tx.ForEach(func(name []byte, records *bbolt.Bucket) error {
		kind, ok := strings.CutPrefix(string(name), kindPrefix)
		if !ok {
			return nil
		}
		return addToCount(tx, kind, records.Stats().KeyN)
	})
}

func recordCount(tx *bbolt.Tx, kind string) int {
	if n := tx.Bucket(bucketCounts).Get([]byte(kind)); len(n) == countLen {
		return int(binary.BigEndian.Uint64(n))
	}
	return 0
}

func addToCount(tx *bbolt.Tx, kind string, by int) error {
	n := binary.BigEndian.AppendUint64(nil, uint64(recordCount(tx, kind)+by))
	return tx.Bucket(bucketCounts).Put([]byte(kind), n)
}
