// Package configedit changes configuration files and shows the changes.
package configedit

import (
	"bytes"
	"crypto/sha256"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/patchbay-mcp/patchbay/gateway/cmd/patchbay/internal/cmdutil"
	"github.com/patchbay-mcp/patchbay/gateway/cmd/patchbay/internal/configs"
	"github.com/patchbay-mcp/patchbay/gateway/cmd/patchbay/internal/console/diff"
	"github.com/patchbay-mcp/patchbay/gateway/cmd/patchbay/internal/exit"
	"github.com/patchbay-mcp/patchbay/gateway/cmd/patchbay/internal/target"
	"github.com/patchbay-mcp/patchbay/gateway/cmd/patchbay/internal/term"
	"github.com/patchbay-mcp/patchbay/gateway/cmd/patchbay/internal/userdir"
	"github.com/patchbay-mcp/patchbay/host/config"
)

// A Edit is a new text of a configuration file.
type Edit struct {
	Path      string
	Old, Text []byte
}

// A Report describes the change of a configuration file, as JSON.
type Report struct {
	File    string `json:"file"`
	Changed bool   `json:"changed"`         // or would be, without --dry-run
	Backup  string `json:"backup,omitzero"` // the file with the old text; absent for a new file
	DryRun  bool   `json:"dryRun,omitzero"`
	Diff    string `json:"diff,omitzero"` // with --dry-run
}

// Apply writes an edit, after a backup of the old text. With dryRun it only returns the difference.
func (e *Edit) Apply(dryRun bool) (r Report, err error) {
	r = Report{File: e.Path, Changed: !bytes.Equal(e.Old, e.Text), DryRun: dryRun}
	switch {
	case dryRun:
		r.Diff = DiffText(e.Path, string(e.Old), string(e.Text))
		return r, nil
	case !r.Changed:
		return r, nil
	}
	if len(e.Old) > 0 {
		if r.Backup, err = backup(e.Path, e.Old); err != nil {
			return r, fmt.Errorf("write a backup of %s: %w", e.Path, err)
		}
	}
	return r, configs.Replace(e.Path, e.Old, e.Text)
}

// Show prints the change that an edit made, or would make.
func Show(f *cmdutil.Factory, r Report) {
	switch {
	case r.DryRun && r.Changed:
		f.IO.Out.Printf("%s", term.Clean(strings.TrimRight(r.Diff, "\n")))
	case r.Changed && r.Backup != "":
		f.IO.Err.Printf("Changed %s; its old text is in %s.", term.CleanLine(r.File), term.CleanLine(r.Backup))
	case r.Changed:
		f.IO.Err.Printf("Wrote %s.", term.CleanLine(r.File))
	default:
		f.IO.Err.Printf("%s stays as it is.", term.CleanLine(r.File))
	}
}

// maxBackups limits the backups of a file; the oldest backups are removed.
const maxBackups = 20

// backup writes the text of a configuration file into the state directory, which other users must
// not be able to read, since the text may contain secrets.
func backup(path string, text []byte) (string, error) {
	abs, err := filepath.Abs(path)
	if err != nil {
		return "", err
	}
	dir, err := userdir.Dir(filepath.Join("backups", fmt.Sprintf("%x", sha256.Sum256([]byte(abs)))[:16]))
	if err != nil {
		return "", err
	}
	name := time.Now().UTC().Format("20060102T150405.000000000Z") + "-" + filepath.Base(path)
	file := filepath.Join(dir, name)
	if err := os.WriteFile(file, text, 0o600); err != nil {
		return "", err
	}
	if all, err := os.ReadDir(dir); err == nil && len(all) > maxBackups { // sorted by time
		for _, old := range all[:len(all)-maxBackups] {
			_ = os.Remove(filepath.Join(dir, old.Name()))
		}
	}
	return file, nil
}

// OwnFile reads the configuration file that the user edits: that of --config or $PATCHBAY_CONFIG, or
// the user's own. Text is empty if it does not exist.
func OwnFile(f *cmdutil.Factory) (path string, text []byte, err error) {
	path = config.Paths(f.Flags.Config)[0]
	if !f.Config.NamesConfig() && !filepath.IsAbs(path) {
		return "", nil, errors.New("cannot find your configuration directory: name a file with --config")
	}
	app := configs.AppOf(path)
	if !slices.Contains([]string{"patchbay", "project", "vscode", "cursor"}, app) {
		return "", nil,
			exit.UsageError(fmt.Errorf("%s has the form of %s: this command edits files in the form of Patchbay",
				path, app))
	}
	if text, err = configs.ReadForEdit(path); err != nil {
		return "", nil, err
	}
	if text == nil && !f.Config.NamesConfig() {
		err = os.MkdirAll(filepath.Dir(path), 0o700)
	}
	return path, text, err
}

// serverName matches names that are words of a command line, and no targets of another kind.
var serverName = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9._-]{0,63}$`)

// CheckServerName returns an error for a name that a server must not have.
func CheckServerName(name string) error {
	if !serverName.MatchString(name) {
		return exit.UsageError(fmt.Errorf(
			"invalid name %.100q: want 1 to 64 of the characters A-Z, a-z, 0-9, ., _ and -", name))
	}
	return nil
}

// DiffText returns a unified difference in which values that look like secrets are hidden.
func DiffText(path, old, text string) string {
	if old == text {
		return ""
	}
	steps := maxDiffSteps
	ops, _ := diff.Complete(linesOf(old), linesOf(text), &steps)
	const context = 3 // lines
	var b strings.Builder
	fmt.Fprintf(&b, "--- %s\n+++ %s\n", path, path)
	for i := 0; i < len(ops); {
		for i < len(ops) && ops[i].Kind == diff.Same {
			i++
		}
		if i == len(ops) {
			break
		}
		start, end := max(i-context, 0), i
		for n := i; n < len(ops) && n-end <= 2*context; n++ {
			if ops[n].Kind != diff.Same {
				end = n
			}
		}
		i = min(end+1+context, len(ops))
		writeHunk(&b, ops, start, i)
	}
	return b.String()
}

func writeHunk(b *strings.Builder, ops []diff.Line, start, end int) {
	count := func(ops []diff.Line, kind string) (n int) {
		for _, op := range ops {
			if op.Kind == diff.Same || op.Kind == kind {
				n++
			}
		}
		return n
	}
	at := func(kind string) string {
		n, first := count(ops[start:end], kind), count(ops[:start], kind)+1
		if n == 0 {
			first--
		}
		return fmt.Sprintf("%d,%d", first, n)
	}
	fmt.Fprintf(b, "@@ -%s +%s @@\n", at(diff.Removed), at(diff.Added))
	for _, op := range ops[start:end] {
		b.WriteString(op.Mark + MaskLine(strings.TrimRight(op.Text, "\r\n")) + "\n")
		if !strings.HasSuffix(op.Text, "\n") {
			b.WriteString("\\ No newline at end of file\n")
		}
	}
}

// maxDiffSteps limits the time of a comparison. A larger difference is shown as a single change.
const maxDiffSteps = 1 << 22

// linesOf returns the lines of a text, with their line ends.
func linesOf(text string) []string { return slices.Collect(strings.Lines(text)) }

// MaskLine hides the values of a line of a configuration that may be secret.
func MaskLine(line string) string {
	line = secretMember.ReplaceAllStringFunc(line, func(part string) string {
		m := secretMember.FindStringSubmatch(part)
		if !target.SecretName.MatchString(m[1]) || strings.HasPrefix(m[3], `"${`) {
			return part
		}
		return m[1] + m[2] + `"` + target.Hidden + `"`
	})
	return target.HideKeys(line)
}

// secretMember matches a name with a text, of JSON, TOML or YAML.
var secretMember = regexp.MustCompile(
	`("?[A-Za-z0-9_-]+"?)(\s*[:=]\s*)("(?:[^"\\]|\\.)*"|'[^']*'|[A-Za-z0-9_+/.=-]{6,})`)
