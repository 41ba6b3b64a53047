package content

import (
	"strings"
	"testing"
)

func TestNamesOfSavedFilesAreSafe(t *testing.T) {
	for _, test := range []struct{ name, mimeType, stem, extension string }{
		{"image", "image/png", "image", ".png"},
		{"file:///a/b.txt", "", "b", ".txt"},
		{"x://h/../../etc/passwd", "", "passwd", ".bin"},
		{"..", "text/plain", "content", ".bin"},
		{`C:\CON.txt`, "", "CCON", ".txt"},
		{"a b\x00\n.t\x1bxt", "", "ab", ".txt"},
		{"x/", "image/jpeg; a=b", "x", ".jpg"},
		{strings.Repeat("n", 99) + "." + strings.Repeat("e", 99), "",
			strings.Repeat("n", 60), "." + strings.Repeat("e", 60)},
	} {
		if stem, extension := FileName(test.name, test.mimeType); stem != test.stem || extension != test.extension {
			t.Errorf("fileName(%q) = %q, %q, want %q, %q", test.name, stem, extension, test.stem, test.extension)
		}
	}
}
