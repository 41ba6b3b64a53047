package authserver

// MemoryRecords returns the number of records in memory, expired or not.
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
