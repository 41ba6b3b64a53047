package mcp

import (
	"os"
	"strconv"
	"syscall"
	"time"
)

// openPolled opens the pipe that f is once more, so that the runtime waits for it and not a thread: while a thread waits
// in a read, the goroutines of its processor do not run until the runtime takes the processor away. Whoever else has the
// pipe sees no difference. It gives nil if f is no pipe, or cannot be opened.
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
		if flags, _, errno := syscall.Syscall(syscall.SYS_FCNTL, fd, syscall.F_GETFL, 0); errno != 0 || flags&syscall.O_ACCMODE == syscall.O_WRONLY {
			err = syscall.EBADF // it is not ours to read
			return
		}
		// Without O_NONBLOCK it waits for a writer, and there may be none any more.
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
