package bolt

import (
	"bytes"
	"encoding/binary"
	"math"
	"time"

	"go.etcd.io/bbolt"
)

// The buckets of an authorization store. Each kind has one more bucket: key → expiry in nanoseconds
// since 1970, value.
var (
	bucketValueExpires = []byte("expires") // expiry, length of the kind, kind, key → empty
	bucketValueCounts  = []byte("counts")  // kind → number of records

	authorizationSchema = schema{
		format:  "patchbay authserver store 2",
		buckets: [][]byte{bucketValueExpires, bucketValueCounts},
	}
)

const (
	kindPrefix    = "kind " // of the names of the buckets of kinds
	expiryLen     = 8
	valueCountLen = 8
)

func kindBucket(kind string) []byte { return []byte(kindPrefix + kind) }

// getValue returns a value that has not expired, nil if there is none. It is valid during the
// transaction.
func getValue(tx *bbolt.Tx, kind, key string, now time.Time) []byte {
	records := tx.Bucket(kindBucket(kind))
	if records == nil || key == "" {
		return nil
	}
	stored := records.Get([]byte(key))
	if len(stored) < expiryLen {
		return nil
	}
	if expires := binary.BigEndian.Uint64(stored); expires != 0 && expires <= expiryNanos(now) {
		return nil
	}
	return stored[expiryLen:]
}

func putValue(tx *bbolt.Tx, kind, key string, value []byte, expires time.Time) error {
	records, err := tx.CreateBucketIfNotExists(kindBucket(kind))
	if err != nil {
		return err
	}
	if records.Get([]byte(key)) == nil {
		if err := addToValueCount(tx, kind, 1); err != nil {
			return err
		}
	}
	if err := unindexValue(tx, records, kind, key); err != nil {
		return err
	}
	stored := binary.BigEndian.AppendUint64(make([]byte, 0, expiryLen+len(value)), expiryNanos(expires))
	if err := records.Put([]byte(key), append(stored, value...)); err != nil {
		return err
	}
	if expires.IsZero() {
		return nil
	}
	return tx.Bucket(bucketValueExpires).Put(valueExpiryKey(stored[:expiryLen], kind, key), nil)
}

// deleteValue removes a record if it exists.
func deleteValue(tx *bbolt.Tx, kind, key string) error {
	records := tx.Bucket(kindBucket(kind))
	if records == nil || records.Get([]byte(key)) == nil {
		return nil
	}
	if err := addToValueCount(tx, kind, -1); err != nil {
		return err
	}
	if err := unindexValue(tx, records, kind, key); err != nil {
		return err
	}
	return records.Delete([]byte(key))
}

// unindexValue removes a record from the index of expiries.
func unindexValue(tx *bbolt.Tx, records *bbolt.Bucket, kind, key string) error {
	stored := records.Get([]byte(key))
	if len(stored) < expiryLen {
		return nil
	}
	return tx.Bucket(bucketValueExpires).Delete(valueExpiryKey(stored[:expiryLen], kind, key))
}

// expiryNanos returns the stored form of an expiry: 0 for never, otherwise nanoseconds since 1970,
// limited to what int64 can represent.
func expiryNanos(expires time.Time) uint64 {
	switch {
	case expires.IsZero():
		return 0
	case expires.Before(time.Unix(0, 1)):
		return 1
	case expires.After(time.Unix(0, math.MaxInt64)):
		return math.MaxInt64
	}
	return uint64(expires.UnixNano())
}

func valueExpiryKey(nanos []byte, kind, key string) []byte {
	index := append(make([]byte, 0, len(nanos)+1+len(kind)+len(key)), nanos...)
	index = append(index, byte(len(kind)))
	index = append(index, kind...)
	return append(index, key...)
}

// parseValueExpiryKey returns the parts of what valueExpiryKey returned.
func parseValueExpiryKey(index []byte) (kind, key string, ok bool) {
	if len(index) < expiryLen+1 {
		return "", "", false
	}
	kindLen, names := int(index[expiryLen]), string(index[expiryLen+1:])
	if len(names) < kindLen {
		return "", "", false
	}
	return names[:kindLen], names[kindLen:], true
}

// sweepValues removes one batch of expired records, the oldest first. It reports whether there are
// no more.
func sweepValues(tx *bbolt.Tx, now time.Time) (done bool, err error) {
	var expired [][]byte
	cursor := tx.Bucket(bucketValueExpires).Cursor()
	for index, _ := cursor.First(); index != nil && len(expired) < sweepBatch; index, _ = cursor.Next() {
		if len(index) > expiryLen && binary.BigEndian.Uint64(index) > expiryNanos(now) {
			break
		}
		expired = append(expired, bytes.Clone(index))
	}
	if len(expired) == 0 {
		return true, errNoChange
	}
	for _, index := range expired {
		if kind, key, ok := parseValueExpiryKey(index); ok {
			if err := deleteValue(tx, kind, key); err != nil {
				return false, err
			}
		}
		if err := tx.Bucket(bucketValueExpires).Delete(index); err != nil {
			return false, err
		}
	}
	return len(expired) < sweepBatch, nil
}

func valueCount(tx *bbolt.Tx, kind string) int {
	if n := tx.Bucket(bucketValueCounts).Get([]byte(kind)); len(n) == valueCountLen {
		return int(binary.BigEndian.Uint64(n))
	}
	return 0
}

func addToValueCount(tx *bbolt.Tx, kind string, delta int) error {
	n := binary.BigEndian.AppendUint64(nil, uint64(max(valueCount(tx, kind)+delta, 0)))
	return tx.Bucket(bucketValueCounts).Put([]byte(kind), n)
}
