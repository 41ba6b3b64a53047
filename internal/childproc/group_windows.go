package childproc

import (
	"os"
	"os/exec"
	"sync/atomic"
	"syscall"
	"unsafe"
)

var (
	kernel32                 = syscall.NewLazyDLL("kernel32.dll")
	createJobObject          = kernel32.NewProc("CreateJobObjectW")
	setInformationJobObject  = kernel32.NewProc("SetInformationJobObject")
	assignProcessToJobObject = kernel32.NewProc("AssignProcessToJobObject")
	terminateJobObject       = kernel32.NewProc("TerminateJobObject")
)

const (
	createNoWindow          = 0x08000000 // a hidden console of its own, so that Ctrl-C does not reach the server
	jobExtendedLimits       = 9
	jobLimitKillOnJobClose  = 0x2000
	statusTerminatedByOwner = 1
)

// jobLimits is JOBOBJECT_EXTENDED_LIMIT_INFORMATION.
type jobLimits struct {
	perProcessTime, perJobTime         int64
	flags                              uint32
	minimumWorkingSet, maximumWorkings uintptr
	activeProcesses                    uint32
	affinity                           uintptr
	priority, scheduling               uint32
	_                                  [8 - unsafe.Sizeof(uintptr(0))]byte // the alignment of C on 32-bit systems
	ioCounters                         [6]uint64
	processMemory, jobMemory           uintptr
	peakProcessMemory, peakJobMemory   uintptr
}

// A processGroup is a job: a process and its descendants. The job ends when its last handle is
// closed, and therefore when this process ends, for whatever reason.
type processGroup struct {
	job     syscall.Handle // zero without a job
	process *os.Process    // nil before the start
	ended   atomic.Bool
}

// newProcessGroup prepares a command to be the first process of a job.
func newProcessGroup(cmd *exec.Cmd) *processGroup {
	cmd.SysProcAttr = &syscall.SysProcAttr{CreationFlags: createNoWindow}
	job, _, _ := createJobObject.Call(0, 0)
	if job == 0 {
		return &processGroup{}
	}
	limits := jobLimits{flags: jobLimitKillOnJobClose}
	_, _, _ = setInformationJobObject.Call(
		job, jobExtendedLimits, uintptr(unsafe.Pointer(&limits)), unsafe.Sizeof(limits))
	return &processGroup{job: syscall.Handle(job)}
}

// add puts the process into the job. Processes that it started before that, within
// microseconds, are not in the job.
func (g *processGroup) add(p *os.Process) {
	g.process = p
	_ = p.WithHandle(func(process uintptr) {
		_, _, _ = assignProcessToJobObject.Call(uintptr(g.job), process)
	})
}

// release closes the job, which kills its remaining processes.
func (g *processGroup) release() {
	if g.job != 0 {
		_ = syscall.CloseHandle(g.job)
	}
}

// terminate ends all processes of the job: Windows cannot ask to terminate for programs without
// windows.
func (g *processGroup) terminate() {
	_, _, _ = terminateJobObject.Call(uintptr(g.job), statusTerminatedByOwner)
	_ = g.process.Kill() // in case it could not be put into the job
	g.ended.Store(true)
}

// kill ends all processes of the job.
func (g *processGroup) kill() { g.terminate() }

// hasEnded reports whether the job was terminated, which no process survives.
func (g *processGroup) hasEnded() bool { return g.ended.Load() }

// signalOf returns "": Windows knows no signals.
func signalOf(*os.ProcessState) string { return "" }
