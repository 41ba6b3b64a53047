// Package term reads from and writes to a terminal: colours, widths, tables, status lines and editing.
package term

import "os"

// Colors of the program's own text. Text of a server is cleaned, and must not contain any.
const (
	styleName    = "1"  // of tools, arguments and keys
	styleWarning = "33" // of warnings
	styleFailure = "31" // of errors
)

// Colored reports whether a stream may contain colors. --color always and never decide; otherwise a
// terminal is colored unless the environment forbids it. See https://no-color.org.
func (s *Streams) Colored(terminal bool) bool {
	switch s.Flags.Color.Value {
	case "always":
		return true
	case "never":
		return false
	}
	return terminal && os.Getenv("NO_COLOR") == "" && os.Getenv("TERM") != "dumb"
}

// paint returns text in a style.
func paint(style, text string) string {
	if text == "" {
		return ""
	}
	return "\x1b[" + style + "m" + text + "\x1b[0m"
}

// Prefix is the beginning of an error on standard error.
func (s *Streams) Prefix() string {
	if s.Colored(s.Err.Terminal) {
		return paint(styleFailure, "patchbay:")
	}
	return "patchbay:"
}

// Warning is the beginning of a warning on standard error.
func (s *Streams) Warning() string {
	if s.Colored(s.Err.Terminal) {
		return "patchbay: " + paint(styleWarning, "warning:")
	}
	return "patchbay: warning:"
}
