package linestream

import (
	"os"
	"strconv"
	"syscall"
	"time"
)

// openPolled opens the pipe f a second time in non-blocking mode, so that the runtime polls it. A
// read that blocks in a system call would instead hold its thread, and the goroutines of its
// processor would wait until the runtime takes the processor away. Other users of the pipe are not
// affected. It returns nil if f is not a pipe, or cannot be opened.
func openPolled(f *os.File) *os.File {
	if info, err := f.Stat(); err != nil || info.Mode()&os.ModeNamedPipe == 0 {
		return nil
	}
	raw, err := f.SyscallConn()
	if err != nil {
		return nil
	}
	var polled *os.File
	if raw.Control(func(fd uintptr) {
		flags, _, errno := syscall.Syscall(syscall.SYS_FCNTL, fd, syscall.F_GETFL, 0)
		if errno != 0 || flags&syscall.O_ACCMODE == syscall.O_WRONLY {
			err = syscall.EBADF
			return
		}
		// Without O_NONBLOCK, open blocks if every writer closed the pipe.
		polled, err = os.OpenFile("/proc/self/fd/"+strconv.Itoa(int(fd)), os.O_RDONLY|syscall.O_NONBLOCK, 0)
	}) != nil || err != nil {
		return nil
	}
	if polled.SetReadDeadline(time.Time{}) != nil {
		polled.Close()
		return nil
	}
	return polled
}
