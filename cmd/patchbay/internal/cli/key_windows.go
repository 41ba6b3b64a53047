package cli

import "golang.org/x/sys/windows"

// setKeyMode lets a console send each key at once, without showing it, and drops what was typed
// before. The returned function restores the console.
func setKeyMode(fd uintptr) (restore func(), err error) {
	console := windows.Handle(fd)
	var before uint32
	if err := windows.GetConsoleMode(console, &before); err != nil {
		return nil, err
	}
	mode := before &^ (windows.ENABLE_LINE_INPUT | windows.ENABLE_ECHO_INPUT)
	if err := windows.SetConsoleMode(console, mode); err != nil {
		return nil, err
	}
	_ = windows.FlushConsoleInputBuffer(console)
	return func() { _ = windows.SetConsoleMode(console, before) }, nil
}
