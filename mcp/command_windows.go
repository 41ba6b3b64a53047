package mcp

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
	createNoWindow          = 0x08000000 // a console of its own, which is not shown: Ctrl-C in ours is not for the server
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
	_                                  [8 - unsafe.Sizeof(uintptr(0))]byte // to the alignment that C has on 32 bits
	ioCounters                         [6]uint64
	processMemory, jobMemory           uintptr
	peakProcessMemory, peakJobMemory   uintptr
}

// A processGroup is a job: a process and all that it starts. The job ends when its last handle is closed, and so when this
// process ends, however it does.
type processGroup struct {
	job     syscall.Handle // zero if there is none
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
	_, _, _ = setInformationJobObject.Call(job, jobExtendedLimits, uintptr(unsafe.Pointer(&limits)), unsafe.Sizeof(limits))
	return &processGroup{job: syscall.Handle(job)}
}

// adopt takes the process that was started into the job. What it may have started in the microseconds since is not in it.
func (g *processGroup) adopt(p *os.Process) {
	g.process = p
	_ = p.WithHandle(func(process uintptr) {
		_, _, _ = assignProcessToJobObject.Call(uintptr(g.job), process)
	})
}

// release closes the job, which kills what is left in it.
func (g *processGroup) release() {
	if g.job != 0 {
		_ = syscall.CloseHandle(g.job)
	}
}

// terminate ends all processes of the job: there is no polite way that programs without windows know.
func (g *processGroup) terminate() {
	_, _, _ = terminateJobObject.Call(uintptr(g.job), statusTerminatedByOwner)
	_ = g.process.Kill() // if it could not be taken into the job
	g.ended.Store(true)
}

// kill ends all processes of the job.
func (g *processGroup) kill() { g.terminate() }

// gone reports whether the job was ended, once its first process was waited for. Nothing survives that.
func (g *processGroup) gone() bool { return g.ended.Load() }

// signalOf returns nothing: there are no signals.
func signalOf(*os.ProcessState) string { return "" }
