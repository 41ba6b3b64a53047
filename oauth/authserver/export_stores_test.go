package authserver

import "go.etcd.io/bbolt"

// MemoryRecords returns how many records take room, expired or not.
func MemoryRecords(s Store) int {
	m := s.(*memoryStore)
	m.mu.Lock()
	defer m.mu.Unlock()
	n := 0
	for _, records := range m.kinds {
		n += len(records)
	}
	return n
}

// FileForgetsCounts makes a file as it was before there were counts.
func FileForgetsCounts(s Store) error {
	return s.(*fileStore).db.Update(func(tx *bbolt.Tx) error { return tx.DeleteBucket(bucketCounts) })
}

// SweepAtMost is how many expired records one write of a file removes.
const SweepAtMost = sweepAtMost

// FileRecords returns how many records take room, expired or not, -1 if the index of expiries has others, and -2 if they are
// not as many as the counts say.
func FileRecords(s Store) int {
	n, expiring, indexed, counted := 0, 0, 0, 0
	_ = s.(*fileStore).db.View(func(tx *bbolt.Tx) error {
		indexed = tx.Bucket(bucketExpires).Stats().KeyN
		return tx.ForEach(func(name []byte, b *bbolt.Bucket) error {
			if len(name) < 5 || string(name[:5]) != "kind " {
				return nil
			}
			counted += recordCount(tx, string(name[5:]))
			return b.ForEach(func(_, stored []byte) error {
				n++
				if _, expires := splitRecord(stored); !expires.IsZero() {
					expiring++
				}
				return nil
			})
		})
	})
	if expiring != indexed {
		return -1
	}
	if counted != n {
		return -2
	}
	return n
}
