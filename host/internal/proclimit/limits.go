package proclimit

// Limits bound the processes of a server together. Zero is no limit.
type Limits struct {
	// Memory is the memory in bytes. Without a cgroup it bounds the private data of each process.
	Memory int64
	// Processes is the number of processes. Each further thread of a process counts, too. It needs a
	// cgroup.
	Processes int
	// OpenFiles is the number of open files of each process.
	OpenFiles int
	// CPU limits the processors: 0.5 means half of a processor, 2 means two. It requires a cgroup.
	CPU float64
	// BestEffort ignores limits that the system cannot enforce; see [Limiter.Missing].
	BestEffort bool
}

// shell sets resource limits. It is not from PATH, which may name another program.
const shell = "/bin/sh"
