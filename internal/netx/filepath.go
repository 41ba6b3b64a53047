package netx

import (
	"net/url"
	"path/filepath"
	"slices"
	"strings"
)

// A FilePath is the file that a file URI or an absolute path names, in a single form for both.
type FilePath struct {
	host     string   // of a network share, in lower case; empty for this machine
	segments []string // unescaped; a drive is the first segment, such as "C:"
}

// Contains reports whether q is p or below p. Names are compared as bytes, so names that differ in
// case are different, as they are not on every file system.
func (p FilePath) Contains(q FilePath) bool {
	return p.host == q.host && len(p.segments) <= len(q.segments) &&
		slices.Equal(p.segments, q.segments[:len(p.segments)])
}

// ParseFilePath parses a file URI, or an absolute path of Unix or Windows. It reports false for
// everything that may name another file than it seems to: relative paths, the segment "..", which
// leads elsewhere behind a symbolic link, escaped separators and, in the Windows form, names that
// the system changes. If isWindows is set, every path takes that form; otherwise paths that begin
// with a drive or with two backslashes.
func ParseFilePath(s string, isWindows bool) (p FilePath, ok bool) {
	if strings.IndexByte(s, 0) >= 0 {
		return p, false
	}
	switch {
	case len(s) >= len("file:") && strings.EqualFold(s[:len("file:")], "file:"):
		return parseFileURI(s, isWindows)
	case len(s) > 2 && isDrive(s[:2]) && (s[2] == '\\' || s[2] == '/'):
		p.segments = append(p.segments, strings.ToUpper(s[:2]))
		ok = p.add(strings.Split(strings.ReplaceAll(s[len(`C:\`):], `\`, "/"), "/"), true)
	case strings.HasPrefix(s, `\\`):
		host, share, _ := strings.Cut(strings.ReplaceAll(s[2:], `\`, "/"), "/")
		p.host = LowerASCII(host)
		ok = host != "" && host != "?" && host != "." && p.add(strings.Split(share, "/"), true)
	case strings.HasPrefix(s, "/") && !strings.HasPrefix(s, "//"):
		ok = p.add(strings.Split(s, "/"), isWindows)
	}
	return p, ok
}

// parseFileURI parses a file URI. Spec: RFC 8089
func parseFileURI(s string, isWindows bool) (p FilePath, ok bool) {
	u, err := url.Parse(s)
	if err != nil || u.Opaque != "" || u.User != nil || strings.ContainsAny(s, `?#\`) ||
		!strings.HasPrefix(u.Path, "/") || strings.HasPrefix(u.Path, "//") || strings.ContainsRune(u.Host, ':') {
		return p, false
	}
	if p.host = LowerASCII(u.Host); p.host == "localhost" {
		p.host = ""
	}
	names := strings.Split(u.EscapedPath()[1:], "/")
	for i, name := range names {
		if names[i], err = url.PathUnescape(name); err != nil || strings.ContainsAny(names[i], "/\x00") {
			return p, false
		}
	}
	if p.host == "" && isDrive(names[0]) {
		isWindows = true
		p.segments, names = append(p.segments, strings.ToUpper(names[0])), names[1:]
	}
	return p, p.add(names, isWindows)
}

// add appends names, except names without a meaning, and reports whether all are valid.
func (p *FilePath) add(names []string, isWindows bool) bool {
	for _, name := range names {
		switch {
		case name == "" || name == ".":
			continue
		case name == "..", isWindows && !isWindowsName(name):
			return false
		}
		p.segments = append(p.segments, name)
	}
	return true
}

// isWindowsName reports whether Windows uses a name unchanged: it removes dots and spaces from the
// end, a colon begins the name of a stream, and names such as NUL are devices.
func isWindowsName(name string) bool {
	return !strings.ContainsAny(name, `\:`) && !strings.HasSuffix(name, ".") && !strings.HasSuffix(name, " ") &&
		filepath.IsLocal(name)
}

func isDrive(s string) bool {
	return len(s) == 2 && s[1] == ':' && (s[0]|0x20 >= 'a' && s[0]|0x20 <= 'z')
}
