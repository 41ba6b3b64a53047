package sandbox

import (
	"encoding/binary"
	"runtime"
	"syscall"
)

// An architecture describes the system calls of GOARCH.
type architecture struct {
	audit            uint32 // as the kernel reports it to filters
	bpf, userfaultfd uint32
	readv, writev    uint32 // process_vm_readv and process_vm_writev
	otherConvention  uint32 // the first number of a second convention, such as x32; 0 without
}

var architectures = map[string]architecture{
	"amd64": {audit: 0xc000003e, bpf: 321, userfaultfd: 323, readv: 310, writev: 311, otherConvention: 0x40000000},
	"arm64": {audit: 0xc00000b7, bpf: 280, userfaultfd: 282, readv: 270, writev: 271},
}

// families are the kinds of sockets that a network namespace confines. Sockets of virtual machines (AF_VSOCK), for
// example, reach the machine from every namespace.
var families = []uint32{syscall.AF_UNIX, syscall.AF_INET, syscall.AF_INET6, syscall.AF_NETLINK}

// ioUringSetup is the same number on all architectures.
const ioUringSetup = 425

// Instructions of classic BPF, and results of a filter.
const (
	load, jumpEqual, jumpAtLeast, result = 0x20, 0x15, 0x35, 0x06

	allow = 0x7fff0000
	kill  = 0x80000000                         // the process
	deny  = 0x00050000 | uint32(syscall.EPERM) // the call

	// Offsets of struct seccomp_data. The architectures are little-endian: the lower half of an argument is first.
	offsetNumber, offsetArch, offsetFirst, offsetSecond = 0, 4, 16, 24
)

// filter returns a program of seccomp, or nil for an architecture without. It denies system calls that
// namespaces do not confine: keys, which the process shares with this program; tracing and reading other
// processes; the log of the kernel; programs in the kernel and large parts of it that servers do not need; sockets
// of other families; and typing into a terminal.
// All other calls are subject to the namespaces and the lack of rights.
func filter(goarch string) []byte {
	arch, ok := architectures[goarch]
	if !ok {
		return nil
	}
	denied := []uint32{syscall.SYS_ADD_KEY, syscall.SYS_REQUEST_KEY, syscall.SYS_KEYCTL, syscall.SYS_PTRACE,
		syscall.SYS_PERF_EVENT_OPEN, syscall.SYS_SYSLOG, arch.readv, arch.writev, arch.bpf, arch.userfaultfd,
		ioUringSetup}
	var f program
	f.add(load, 0, 0, offsetArch)
	f.add(jumpEqual, 1, 0, arch.audit)
	f.add(result, 0, 0, kill)
	f.add(load, 0, 0, offsetNumber)
	if arch.otherConvention > 0 {
		f.add(jumpAtLeast, 0, 1, arch.otherConvention)
		f.add(result, 0, 0, deny)
	}
	for _, number := range denied {
		f.add(jumpEqual, 0, 1, number)
		f.add(result, 0, 0, deny)
	}
	f.add(jumpEqual, 0, uint8(2*len(families)+2), syscall.SYS_SOCKET)
	f.add(load, 0, 0, offsetFirst)
	for _, family := range families {
		f.add(jumpEqual, 0, 1, family)
		f.add(result, 0, 0, allow)
	}
	f.add(result, 0, 0, deny)
	f.add(jumpEqual, 1, 0, syscall.SYS_IOCTL)
	f.add(result, 0, 0, allow)
	f.add(load, 0, 0, offsetSecond)
	for _, command := range []uint32{syscall.TIOCSTI, tiocLinux} {
		f.add(jumpEqual, 0, 1, command)
		f.add(result, 0, 0, deny)
	}
	f.add(result, 0, 0, allow)
	return f
}

// tiocLinux pastes a selection into a virtual terminal, among others.
const tiocLinux = 0x541c

// A program contains instructions of classic BPF.
type program []byte

// add adds an instruction. A jump skips yes or no instructions.
func (p *program) add(code uint16, yes, no uint8, k uint32) {
	*p = binary.LittleEndian.AppendUint16(*p, code)
	*p = append(*p, yes, no)
	*p = binary.LittleEndian.AppendUint32(*p, k)
}

// filterError returns the error of an architecture without a filter.
func filterError() error {
	return &Error{"it needs the architecture amd64 or arm64, and this program is for " + runtime.GOARCH}
}
