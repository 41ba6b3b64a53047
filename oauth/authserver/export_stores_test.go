package authserver

import "go.etcd.io/bbolt"

// MemoryRecords gives how many records take room, expired or not.
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

// FileRecords gives how many records take room, expired or not, and -1 if the index of expiries has others.
func FileRecords(s Store) int {
	n, expiring, indexed := 0, 0, 0
	_ = s.(*fileStore).db.View(func(tx *bbolt.Tx) error {
		indexed = tx.Bucket(bucketExpires).Stats().KeyN
		return tx.ForEach(func(name []byte, b *bbolt.Bucket) error {
			if len(name) < 5 || string(name[:5]) != "kind " {
				return nil
			}
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
	return n
}
