// Package skills lists, reads and verifies skills.
package skills

import (
	"context"
	"errors"
	"fmt"
	"path"
	"strings"

	"github.com/spf13/cobra"

	"github.com/patchbay-mcp/patchbay/ext/skills"
	"github.com/patchbay-mcp/patchbay/gateway/cmd/patchbay/internal/cmd/read"
	"github.com/patchbay-mcp/patchbay/gateway/cmd/patchbay/internal/cmdutil"
	"github.com/patchbay-mcp/patchbay/gateway/cmd/patchbay/internal/exit"
	"github.com/patchbay-mcp/patchbay/gateway/cmd/patchbay/internal/flags"
	"github.com/patchbay-mcp/patchbay/gateway/cmd/patchbay/internal/term"
	"github.com/patchbay-mcp/patchbay/mcp"
)

// NewCmdSkills returns the command "skills" with its subcommands.
func NewCmdSkills(f *cmdutil.Factory) *cobra.Command {
	return cmdutil.WithSubcommands(f, "skills", "List, read and verify skills",
		cmdutil.PlainTarget(f, "list", "List skills", nil, showSkills),
		cmdutil.PlainTarget(f, "show SKILL", "Show a skill and the list of its files", skillNames, showSkill),
		cmdutil.PlainTarget(f, "read SKILL [FILE]", "Read and verify a file of a skill", skillNames, readSkill),
		NewCmdVerify(f, nil))
}

// VerifyOptions are the options of "skills verify".
type VerifyOptions struct {
	cmdutil.Invocation
	MaxBytes int64 // limits the bytes received: a server can list any number of skills
}

// NewCmdVerify returns the command "skills verify".
func NewCmdVerify(f *cmdutil.Factory, run cmdutil.Run[*VerifyOptions]) *cobra.Command {
	return cmdutil.TargetCommand(f, "verify [SKILL]", "Verify the files of skills", skillNames,
		&VerifyOptions{MaxBytes: maxVerified}, cmdutil.Or(run, Verify))
}

// Verify verifies the files of a skill, or of all skills.
func Verify(ctx context.Context, o *VerifyOptions) error {
	return cmdutil.Connected(verifySkills)(ctx, o)
}

// showSkills lists the skills of a server.
func showSkills(ctx context.Context, o *cmdutil.Invocation, c *mcp.Client) error {
	list, faults, err := listSkills(ctx, c)
	if err != nil {
		return err
	}
	if o.Flags.JSON {
		o.IO.Out.Value(map[string]any{"skills": list})
		return badSkills(faults)
	}
	for _, s := range list {
		o.IO.Out.Printf("%s  %s", term.CleanLine(s.URI), sizeOfSkill(s))
		cmdutil.ShowDescription(o.Factory, s.Name, s.Description, false)
	}
	return badSkills(faults)
}

// showSkill prints a skill and the list of its files.
func showSkill(ctx context.Context, o *cmdutil.Invocation, c *mcp.Client) error {
	s, err := findSkill(ctx, c, o.Words[0])
	if err != nil {
		return err
	}
	if o.PrintedJSON(struct {
		Skill       *skills.Skill `json:"skill"`
		Fingerprint string        `json:"fingerprint,omitzero"`
	}{s, s.Fingerprint()}) {
		return nil
	}
	o.IO.Out.Printf("%s  %s", term.CleanLine(s.URI), sizeOfSkill(s))
	cmdutil.ShowDescription(o.Factory, s.Name, s.Description, true)
	o.IO.Out.Printf("  frontmatter: %s", term.CleanJSON(string(s.Frontmatter)))
	if s.Dynamic {
		o.IO.Out.Printf("  files: dynamic (no digests to verify)")
	} else {
		o.IO.Out.Printf("  fingerprint: %s", s.Fingerprint())
	}
	for _, f := range s.Files {
		o.IO.Out.Printf("  %s  %s  %s", f.Digest, term.CleanLine(f.Path), term.FormatBytes(int(f.Size)))
	}
	return nil
}

// readSkill verifies a file of a skill and prints it.
func readSkill(ctx context.Context, o *cmdutil.Invocation, c *mcp.Client) error {
	s, err := findSkill(ctx, c, o.Words[0])
	if err != nil {
		return err
	}
	name := "SKILL.md"
	if len(o.Words) > 1 {
		name = path.Clean(o.Words[1])
	}
	loaded, err := skills.Load(ctx, c, s, nil)
	if err != nil {
		return skillError(err)
	}
	data, err := loaded.Read(ctx, name)
	if err != nil {
		return skillError(err)
	}
	part := mcp.FileContents(name, data)
	part.URI = strings.TrimSuffix(s.URI, "SKILL.md") + name
	for _, f := range s.Files {
		if f.Path == name {
			part.URI = f.URI
		}
	}
	if o.Flags.JSON {
		o.IO.Out.Result(&mcp.ReadResourceResult{Contents: []*mcp.ResourceContents{part}})
	}
	return read.ShowContents(o.Factory, "file "+name, part)
}

// A skillReport is the result of verifying a skill.
type skillReport struct {
	URI         string   `json:"uri"`
	Fingerprint string   `json:"fingerprint,omitzero"`
	Files       int      `json:"files"` // verified
	Problems    []string `json:"problems"`
}

func verifySkills(ctx context.Context, o *VerifyOptions, c *mcp.Client) error {
	var list []*skills.Skill
	var faults []error
	var err error
	if len(o.Words) == 0 {
		list, faults, err = listSkills(ctx, c)
	} else {
		list = make([]*skills.Skill, 1)
		list[0], err = findSkill(ctx, c, o.Words[0])
	}
	if err != nil {
		return err
	}
	reports := []skillReport{}
	for _, s := range list {
		r, err := verifySkill(ctx, o, c, s)
		if err != nil {
			return err
		}
		for _, problem := range r.Problems {
			faults = append(faults, errors.New(problem))
		}
		reports = append(reports, r)
	}
	if o.Flags.JSON {
		o.IO.Out.Value(map[string]any{"skills": reports})
		return badSkills(faults)
	}
	for _, r := range reports {
		if len(r.Problems) > 0 {
			o.IO.Out.Printf("bad  %s", term.CleanLine(r.URI))
		} else {
			o.IO.Out.Printf("good %s  %s", term.CleanLine(r.URI), term.Counted(r.Files, "file"))
		}
	}
	return badSkills(faults)
}

// maxVerified is the default of VerifyOptions.MaxBytes.
const maxVerified = 1 << 30

// errUnchecked is the problem of a skill that was not verified because of maxVerified.
var errUnchecked = fmt.Errorf("not verified: more than %s received; verify the skill by name",
	term.FormatBytes(maxVerified))

// verifySkill verifies all files of a skill. An error means that the connection failed.
func verifySkill(ctx context.Context, o *VerifyOptions, c *mcp.Client, s *skills.Skill) (r skillReport, err error) {
	r = skillReport{URI: s.URI, Fingerprint: s.Fingerprint(), Problems: []string{}}
	tooMuch := func() bool { return o.Client.Received.Load() >= o.MaxBytes }
	if tooMuch() {
		return r.add(ctx, fmt.Errorf("%s: %w", s.URI, errUnchecked))
	}
	loaded, err := skills.Load(ctx, c, s, nil)
	if err != nil {
		return r.add(ctx, err)
	}
	for _, f := range s.Files {
		if tooMuch() {
			return r.add(ctx, fmt.Errorf("%s: %s: %w", s.URI, f.Path, errUnchecked))
		}
		if _, err := loaded.Read(ctx, f.Path); err != nil {
			if r, err = r.add(ctx, err); err != nil {
				return r, err
			}
			continue
		}
		r.Files++
	}
	return r, nil
}

func (r skillReport) add(ctx context.Context, err error) (skillReport, error) {
	var rpc *mcp.Error
	isProblem := ctx.Err() == nil && errors.As(err, &rpc)
	for _, kind := range []error{skills.ErrVerification, skills.ErrDynamic, skills.ErrTooLarge,
		mcp.ErrInvalidResult, errUnchecked} {
		isProblem = isProblem || errors.Is(err, kind)
	}
	if !isProblem {
		return r, err
	}
	r.Problems = append(r.Problems, err.Error())
	return r, nil
}

// listSkills returns the valid skills of a server, and the errors of invalid entries.
func listSkills(ctx context.Context, c *mcp.Client) (list []*skills.Skill, faults []error, err error) {
	list = []*skills.Skill{}
	for s, err := range skills.List(ctx, c) {
		switch {
		case errors.Is(err, skills.ErrInvalidEntry):
			faults = append(faults, err)
		case err != nil:
			return list, faults, skillError(err)
		default:
			list = append(list, s)
		}
	}
	return list, faults, nil
}

// findSkill returns the skill with a URI or a name.
func findSkill(ctx context.Context, c *mcp.Client, wanted string) (*skills.Skill, error) {
	if strings.Contains(wanted, "://") {
		s, err := skills.Get(ctx, c, wanted)
		return s, skillError(err)
	}
	list, _, err := listSkills(ctx, c)
	if err != nil {
		return nil, err
	}
	var found []*skills.Skill
	var known, same []string
	for _, s := range list {
		known = append(known, s.Name)
		if s.Name == wanted {
			found, same = append(found, s), append(same, s.URI)
		}
	}
	switch len(found) {
	case 0:
		return nil, exit.NotFoundError(term.UnknownName("skill", wanted, known))
	case 1:
		return found[0], nil
	}
	return nil, exit.UsageError(fmt.Errorf("ambiguous skill name %q: want %s", wanted,
		term.CleanLine(flags.OneOf(same))))
}

// skillNames returns the names of the skills of a server.
func skillNames(ctx context.Context, c *mcp.Client) (names []string) {
	list, _, _ := listSkills(ctx, c) // names before an error are useful
	for _, s := range list {
		names = append(names, s.Name)
	}
	return names
}

// skillError adds the exit code to an error of package skills.
func skillError(err error) error {
	switch {
	case errors.Is(err, skills.ErrNotOffered), errors.Is(err, skills.ErrUnlisted):
		return exit.NotFoundError(err)
	case errors.Is(err, skills.ErrVerification), errors.Is(err, skills.ErrInvalidEntry):
		return &exit.Error{Code: exit.Protocol, Err: err}
	}
	return err
}

// badSkills joins the problems of skills into an error, nil without any.
func badSkills(faults []error) error {
	if len(faults) == 0 {
		return nil
	}
	return &exit.Error{Code: exit.Protocol, Err: errors.Join(faults...)}
}

func sizeOfSkill(s *skills.Skill) string {
	if s.Dynamic {
		return "dynamic"
	}
	total := int64(0)
	for _, f := range s.Files {
		total += min(f.Size, skills.MaxBytes) // a server can report any size
	}
	return term.Counted(len(s.Files), "file") + ", " + term.FormatBytes(int(total))
}
