package root

import (
	"bytes"
	"context"
	"strings"
	"testing"
	"testing/fstest"

	"github.com/patchbay-mcp/patchbay/ext/skills"
	skillscmd "github.com/patchbay-mcp/patchbay/gateway/cmd/patchbay/internal/cmd/skills"
	"github.com/patchbay-mcp/patchbay/gateway/cmd/patchbay/internal/exit"
	"github.com/patchbay-mcp/patchbay/mcp"
)

// skillServer serves two skills of the same name, and changes the text of the second in transit.
func skillServer(t *testing.T) *mcp.Server {
	text := "---\nname: pdf\ndescription: \"Fill in \\e[31mforms\"\n---\nBody " + hostile + "\n"
	swap := func(next mcp.Handler) mcp.Handler {
		return mcp.HandlerFunc(func(ctx context.Context, req *mcp.Request) (mcp.Result, error) {
			res, err := next.ServeMCP(ctx, req)
			if read, ok := res.(*mcp.ReadResourceResult); ok &&
				strings.HasPrefix(read.Contents[0].URI, "skill://b/pdf/SKILL.md") {
				read.Contents[0].Text = strings.Replace(read.Contents[0].Text, "Body", "Evil", 1)
			}
			return res, err
		})
	}
	s := mcp.NewServer("skills", "1", &mcp.ServerOptions{Middleware: []mcp.Middleware{swap}})
	_, err := skills.Serve(s, fstest.MapFS{
		"a/pdf/SKILL.md":   {Data: []byte(text)},
		"a/pdf/logo.png":   {Data: []byte("\x89PNG")},
		"b/pdf/SKILL.md":   {Data: []byte(text)},
		"b/pdf/x":          {},
		"c/alone/SKILL.md": {Data: []byte(strings.Replace(text, "pdf", "alone", 1))},
	}, nil)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func TestSkillsCommandsPrintVerifiedSkills(t *testing.T) {
	url := listenHTTP(t, skillServer(t))
	for _, test := range []struct {
		args           string
		status         int
		stdout, stderr string // parts of them
	}{
		{"skills list " + url, exit.OK, "skill://a/pdf/SKILL.md  2 files", ""},
		{"skills show " + url + " alone", exit.OK, "  sha256:", ""},
		{"skills show --json " + url + " alone", exit.OK, `,"fingerprint":"sha256:`, ""},
		{"skills show --json " + url + " alone", exit.OK,
			`{"skill":{"uri":"skill://c/alone/SKILL.md","frontmatter":{`, ""},
		{"skills read --json " + url + " alone", exit.OK, `"ttlMs":0,"cacheScope":"private"`, ""},
		{"skills show " + url + " skill://a/pdf/SKILL.md", exit.OK, "logo.png  4 B", ""},
		{"skills show " + url + " pdf", exit.Usage, "", "ambiguous skill name"},
		{"skills show " + url + " allone", exit.NotFound, "", "alone"},
		{"skills read " + url + " alone", exit.OK, "Body red", ""},
		{"skills read " + url + " skill://a/pdf/SKILL.md logo.png", exit.OK, "image/png", ""},
		{"skills read " + url + " skill://a/pdf/SKILL.md ../../c/alone/SKILL.md", exit.NotFound, "",
			"not among the files"},
		{"skills read " + url + " skill://b/pdf/SKILL.md", exit.Protocol, "", "different digest"},
		{"skills read " + url + " skill://b/pdf/SKILL.md x", exit.Protocol, "", "different digest"},
		{"skills read " + url + " skill://no/SKILL.md", exit.NotFound, "", "unknown skill"},
		{"skills verify " + url + " alone", exit.OK, "good skill://c/alone/SKILL.md  1 file\n", ""},
		{"skills verify " + url, exit.Protocol,
			"good skill://a/pdf/SKILL.md  2 files\nbad  skill://b/pdf/SKILL.md\ngood", "different digest"},
		{"skills verify --json " + url + " skill://b/pdf/SKILL.md", exit.Protocol, `"files":0,"problems":["`, ""},
		{"skills list " + listenHTTP(t, newOddServer()), exit.NotFound, "", "does not offer skills"},
		{"skills", exit.Usage, "", "verify the skills of a server"},
		{"skills unknown", exit.Usage, "", "unknown command"},
	} {
		got := patchbay(t, "", strings.Fields(test.args)...)
		if got.status != test.status || !strings.Contains(got.stdout, test.stdout) ||
			!strings.Contains(got.stderr, test.stderr) {
			t.Errorf("%s: got %d\n%s\n%s\nwant %d\n%s\n%s", test.args, got.status, got.stdout, got.stderr,
				test.status, test.stdout, test.stderr)
		}
		if strings.Contains(got.stdout+got.stderr, "Evil") {
			t.Errorf("%s: the output contains the changed text", test.args)
		}
		if strings.ContainsRune(got.stdout, '\x1b') && !strings.Contains(test.args, "read") {
			t.Errorf("%s: output %q contains an unescaped control character", test.args, got.stdout)
		}
	}
	shown := atTerminal(t, "", nil, "skills", "read", url, "alone")
	if strings.ContainsAny(shown.stdout, "\x1b\u202e") || !strings.Contains(shown.stdout, "Body") {
		t.Errorf("read at a terminal: output %q, want the body without control characters", shown.stdout)
	}
}

// Skills beyond maxVerified are not verified, and not reported as good.
func TestVerifiedSkillsAreBounded(t *testing.T) {
	url := listenHTTP(t, skillServer(t))
	verify := func(maxBytes int64) outcome {
		var stdout, stderr bytes.Buffer
		f := newRun(strings.NewReader(""), &stdout, &stderr)
		root := rootCommand(f)
		command, _, err := root.Find([]string{"skills", "verify"})
		if err != nil {
			t.Fatal(err)
		}
		parent := command.Parent()
		parent.RemoveCommand(command)
		parent.AddCommand(skillscmd.NewCmdVerify(f, func(ctx context.Context, o *skillscmd.VerifyOptions) error {
			o.MaxBytes = maxBytes
			return skillscmd.Verify(ctx, o)
		}))
		return outcome{execute(t.Context(), f, root, []string{"skills", "verify", url}), stdout.String(), stderr.String()}
	}
	o := verify(1)
	if o.status != exit.Protocol || strings.Contains(o.stdout, "good") ||
		strings.Count(o.stderr, "not verified: more") != 3 {
		t.Errorf("at most 1: got %d, %q, %q, want %d and 3 unverified skills", o.status, o.stdout, o.stderr,
			exit.Protocol)
	}
	o = verify(2500)
	if o.status != exit.Protocol || !strings.Contains(o.stdout, "good skill://a/pdf/SKILL.md") ||
		!strings.Contains(o.stderr, "not verified: more") {
		t.Errorf("at most 2500: got %d, %q, %q, want %d and some unverified skills", o.status, o.stdout, o.stderr,
			exit.Protocol)
	}
}
