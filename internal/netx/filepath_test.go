package netx_test

import (
	"testing"

	"github.com/patchbay-mcp/patchbay/internal/netx"
)

func TestFilePaths(t *testing.T) {
	for _, test := range []struct {
		root, target       string
		contained, windows bool // windows: also contained on a Windows machine
	}{
		{"file:///src", "/src", true, true},
		{"file:///src/", "/src/a.go", true, true},
		{"file:///src", "file:///src/a%20b", true, true},
		{"file:///src/a%20b", "/src/a b/c", true, true},
		{"file:///src", "file://localhost/src/a", true, true},
		{"FILE:///src", "/src//./a/", true, true},
		{"file:///", "/etc/passwd", true, true},
		{"file:///src", "/srcs/a", false, false},
		{"file:///src", "/", false, false},
		{"file:///src", "/Src/a", false, false},
		{"file:///src", "/src/../etc", false, false},
		{"file:///src", "/src/a/../b", false, false}, // a may be a symbolic link
		{"file:///src", "file:///src/%2e%2e/etc", false, false},
		{"file:///src", "file:///src/a%2Fb", false, false},
		{"file:///src", "file:///src/%zz", false, false},
		{"file:///src", "file:///src/a%00", false, false},
		{"file:///src", "/src/a\x00", false, false},
		{"file:///src", "src/a", false, false},
		{"file:///src", "", false, false},
		{"file:///src", "//src/a", false, false},
		{"file:///src", "file:////src/a", false, false},
		{"file:///src", "file:/src/a", true, true}, // the short form of RFC 8089
		{"file:///src", "file:src/a", false, false},
		{"file:///src", "file:///src/a?b", false, false},
		{"file:///src", "file:///src/a#", false, false},
		{"file:///src", "file://host/src/a", false, false},
		{"file:///src", "file://user@/src/a", false, false},
		{"file:///src", "http:///src/a", false, false},
		{"file:///src", `/src/a\..\..\b`, true, false}, // a name on Unix
		{"http:///src", "/src", false, false},
		{"", "/src", false, false},
		// Windows
		{"file:///C:/src", `C:\src\a.go`, true, true},
		{"file:///c%3A/src", `C:/src\a.go`, true, true},
		{"file:///C:/src", "file:///c:/src/a", true, true},
		{"file:///C:/", `c:\src`, true, true},
		{"file:///C:/src", `D:\src\a`, false, false},
		{"file:///C:/src", `C:src\a`, false, false},
		{"file:///C:/src", `C:`, false, false},
		{"file:///C:/src", `C:\src\..\x`, false, false},
		{"file:///C:/src", `C:\src\.. \x`, false, false},
		{"file:///C:/src", `C:\src\a.`, false, false},
		{"file:///C:/src", `C:\src\a:stream`, false, false},
		{"file:///C:/src", `file:///C:/src/a%5C..%5C..%5Cx`, false, false},
		{"file:///C:/src", `\\?\C:\src\a`, false, false},
		{"file:///C:/src", `\\.\C:\src\a`, false, false},
		{"file://Host/share", `\\host\share\a`, true, true},
		{"file://host/share", `\\host\data`, false, false},
		{"file://host/share", `\\`, false, false},
	} {
		for _, onWindows := range []bool{false, true} {
			root, ok := netx.ParseFilePath(test.root, onWindows)
			target, okTarget := netx.ParseFilePath(test.target, onWindows)
			want := test.contained
			if onWindows {
				want = test.windows
			}
			if got := ok && okTarget && root.Contains(target); got != want {
				t.Errorf("%q contains %q, Windows %v: got %v, want %v", test.root, test.target, onWindows, got, want)
			}
		}
	}
}

func FuzzFilePathsStayWithinTheirRoot(f *testing.F) {
	f.Add("file:///src/a", true)
	f.Add(`C:\src\..`, false)
	f.Fuzz(func(t *testing.T, s string, isWindows bool) {
		p, ok := netx.ParseFilePath(s, isWindows)
		if ok && !p.Contains(p) {
			t.Errorf("%q does not contain itself", s)
		}
	})
}
