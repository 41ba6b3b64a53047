package config

import (
	"maps"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"
)

// A Sandbox isolates the processes of a command from the machine, on Linux with bubblewrap. The processes see
// the programs and libraries of the system, the folders listed here, and nothing else. A host that cannot
// enforce the sandbox does not start the server.
type Sandbox struct {
	// Read and Write contain absolute paths of existing folders that the processes may read, or read and
	// change. The host resolves symbolic links at each start. A folder in a folder of Write must not be listed.
	Read  []string `json:"read,omitzero" jsonschema:"absolute paths of readable folders,minLength=1,maxLength=4096"`
	Write []string `json:"write,omitzero" jsonschema:"absolute paths of writable folders,minLength=1,maxLength=4096"`
	// Network selects the network. Default: NetworkNone.
	Network Network `json:"network,omitzero" jsonschema:"none, or the network of the machine,enum=none|host"`
	// AddressSpace limits the virtual memory of each process, in bytes (RLIMIT_AS); zero means no limit. Virtual
	// memory includes reserved addresses: runtimes with garbage collection reserve more than they use.
	AddressSpace Size `json:"addressSpace,omitzero" jsonschema:"virtual memory of each process,format=size"`
	// Processes limits the processes and threads in the sandbox (RLIMIT_NPROC); zero means no limit. Linux before
	// 5.14 counts all processes of the user. Linux does not apply the limit to root, so the host refuses it there.
	Processes int `json:"processes,omitzero" jsonschema:"processes and threads,minimum=1,maximum=1000000"`
	// CPUTime limits the processor time of each process (RLIMIT_CPU); zero means no limit. The kernel kills a
	// process that exceeds it. It is a whole number of seconds.
	CPUTime Duration `json:"cpuTime,omitzero" jsonschema:"processor time of each process,format=duration"`
	// OpenFiles limits the open files of each process (RLIMIT_NOFILE); zero means the limit of the host.
	OpenFiles int `json:"openFiles,omitzero" jsonschema:"open files of each process,minimum=16,maximum=1000000"`
	// FileSize limits the size of each file that a process writes, in bytes (RLIMIT_FSIZE); zero means no limit.
	FileSize Size `json:"fileSize,omitzero" jsonschema:"largest file that a process may write,format=size"`
}

// A Network selects the network of a sandbox.
type Network string

// Networks of a sandbox.
const (
	// NetworkNone is a network without other machines: only the processes of the sandbox reach each other.
	NetworkNone Network = "none"
	// NetworkHost is the network of the machine, with the servers on its loopback interface and its abstract
	// sockets. It weakens the sandbox.
	NetworkHost Network = "host"
)

// maxSandboxFolders limits the folders of a sandbox: each is a mount, and an argument of bubblewrap.
const maxSandboxFolders = 100

// sandbox checks the sandbox of a server. The host checks the folders themselves when it starts the server.
func (p *Problems) sandbox(s *Sandbox, at func(member ...string) string) {
	if s == nil {
		return
	}
	if n := len(s.Read) + len(s.Write); n > maxSandboxFolders {
		p.Add(at("sandbox"), "got %d folders, want at most %d", n, maxSandboxFolders)
	}
	for member, paths := range map[string][]string{"read": s.Read, "write": s.Write} {
		for i, path := range paths {
			if !filepath.IsAbs(path) || filepath.Clean(path) != path {
				p.Add(at("sandbox", member, strconv.Itoa(i)),
					"got %.64q, want an absolute path without \".\", \"..\" and a slash at its end", path)
			}
		}
	}
	if s.CPUTime%Duration(time.Second) != 0 {
		p.Add(at("sandbox", "cpuTime"), "got %v, want whole seconds", s.CPUTime)
	}
}

// sandboxes checks that no server can replace a folder of another server's sandbox by a link to any other folder.
func (p *Problems) sandboxes(servers map[string]*ServerSettings) {
	names := slices.DeleteFunc(slices.Sorted(maps.Keys(servers)), func(name string) bool {
		return servers[name] == nil || servers[name].Sandbox == nil
	})
	for _, name := range names {
		own := servers[name].Sandbox
		for _, other := range names {
			for _, outer := range servers[other].Sandbox.Write {
				for _, path := range slices.Concat(own.Read, own.Write) {
					if name != other && strings.HasPrefix(path, outer+"/") {
						p.Add(Pointer("servers", name, "sandbox"), "the folder %.64q is within %.64q, where the "+
							"server %.64q can replace it by a link: want another folder", path, outer, other)
					}
				}
			}
		}
	}
}
