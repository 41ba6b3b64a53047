package authserver

// MemoryRecords returns the number of records in memory, expired or not: all, or those of a kind.
func MemoryRecords(s Store, kind ...string) int {
	m := s.(*memoryStore)
	m.mu.Lock()
	defer m.mu.Unlock()
	n := 0
	for k, records := range m.kinds {
		if len(kind) == 0 || k == kind[0] {
			n += len(records)
		}
	}
	return n
}
