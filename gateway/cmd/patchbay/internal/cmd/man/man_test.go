package man

import "testing"

func TestTextMeansItselfToTroff(t *testing.T) {
	for text, want := range map[string]string{
		".so /etc/passwd": `\&.so /etc/passwd`, "'x": `\&\(aqx`, `a\fBb`: `a\efBb`, "--x": `\-\-x`, "…": `\[u2026]`,
		"~`^": `\(ti\(ga\(ha`, "": "",
	} {
		if got := Roff(text); got != want {
			t.Errorf("%q: got %q, want %q", text, got, want)
		}
	}
	const text = "One\ntwo.\n\n  a  b\n\n  c\nThree\n"
	if got, want := roffText(text), "One\ntwo.\n.PP\n.nf\n  a  b\n\n  c\n.fi\n.PP\nThree\n"; got != want {
		t.Errorf("got %q, want %q", got, want)
	}
}
