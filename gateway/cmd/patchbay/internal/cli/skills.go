package cli

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"path"
	"strings"

	"github.com/patchbay-mcp/patchbay/ext/skills"
	"github.com/patchbay-mcp/patchbay/mcp"
)

func showSkills(ctx context.Context, f *factory, c *mcp.Client, _ []string) error {
	list, faults, err := listSkills(ctx, c)
	if err != nil {
		return err
	}
	if f.Flags.json {
		f.IO.Out.value(map[string]any{"skills": list})
		return badSkills(faults)
	}
	for _, s := range list {
		f.IO.Out.printf("%s  %s", cleanLine(s.URI), sizeOfSkill(s))
		showDescription(f, s.Name, s.Description, false)
	}
	return badSkills(faults)
}

func showSkill(ctx context.Context, p *factory, c *mcp.Client, words []string) error {
	s, err := findSkill(ctx, c, words[0])
	if err != nil {
		return err
	}
	if p.Flags.json {
		p.IO.Out.value(struct {
			Skill       *skills.Skill `json:"skill"`
			Fingerprint string        `json:"fingerprint,omitzero"`
		}{s, s.Fingerprint()})
		return nil
	}
	p.IO.Out.printf("%s  %s", cleanLine(s.URI), sizeOfSkill(s))
	showDescription(p, s.Name, s.Description, true)
	p.IO.Out.printf("  frontmatter: %s", cleanJSON(string(s.Frontmatter)))
	if s.Dynamic {
		p.IO.Out.printf("  files: dynamic (no digests to verify)")
	} else {
		p.IO.Out.printf("  fingerprint: %s", s.Fingerprint())
	}
	for _, f := range s.Files {
		p.IO.Out.printf("  %s  %s  %s", f.Digest, cleanLine(f.Path), formatBytes(int(f.Size)))
	}
	return nil
}

func readSkill(ctx context.Context, p *factory, c *mcp.Client, words []string) error {
	s, err := findSkill(ctx, c, words[0])
	if err != nil {
		return err
	}
	name := "SKILL.md"
	if len(words) > 1 {
		name = path.Clean(words[1])
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
	if p.Flags.json {
		p.IO.Out.result(&mcp.ReadResourceResult{Contents: []*mcp.ResourceContents{part},
			Cache: mcp.Cache{Scope: mcp.CachePrivate}})
	}
	return showContents(p, "file "+name, part)
}

// A skillReport is the result of verifying a skill.
type skillReport struct {
	URI         string   `json:"uri"`
	Fingerprint string   `json:"fingerprint,omitzero"`
	Files       int      `json:"files"` // verified
	Problems    []string `json:"problems"`
}

func verifySkills(ctx context.Context, f *factory, c *mcp.Client, words []string) error {
	var list []*skills.Skill
	var faults []error
	var err error
	if len(words) == 0 {
		list, faults, err = listSkills(ctx, c)
	} else {
		list = make([]*skills.Skill, 1)
		list[0], err = findSkill(ctx, c, words[0])
	}
	if err != nil {
		return err
	}
	reports := []skillReport{}
	for _, s := range list {
		r, err := verifySkill(ctx, f, c, s)
		if err != nil {
			return err
		}
		for _, problem := range r.Problems {
			faults = append(faults, errors.New(problem))
		}
		reports = append(reports, r)
	}
	if f.Flags.json {
		f.IO.Out.value(map[string]any{"skills": reports})
		return badSkills(faults)
	}
	for _, r := range reports {
		if len(r.Problems) > 0 {
			f.IO.Out.printf("bad  %s", cleanLine(r.URI))
		} else {
			f.IO.Out.printf("good %s  %s", cleanLine(r.URI), counted(r.Files, "file"))
		}
	}
	return badSkills(faults)
}

// maxVerified bounds the bytes received to verify all skills: a server can list any number.
const maxVerified = 1 << 30

// errUnchecked is the problem of a skill that was not verified because of maxVerified.
var errUnchecked = fmt.Errorf("not verified: more than %s received; verify the skill by name", formatBytes(maxVerified))

// verifySkill verifies all files of a skill. An error means that the connection failed.
func verifySkill(ctx context.Context, p *factory, c *mcp.Client, s *skills.Skill) (r skillReport, err error) {
	r = skillReport{URI: s.URI, Fingerprint: s.Fingerprint(), Problems: []string{}}
	tooMuch := func() bool { return p.Client.received.Load() >= cmp.Or(p.verifyMost, maxVerified) }
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
		return nil, notFound(unknownName("skill", wanted, known))
	case 1:
		return found[0], nil
	}
	return nil, usage(fmt.Errorf("ambiguous skill name %q: want %s", wanted, cleanLine(oneOf(same))))
}

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
		return notFound(err)
	case errors.Is(err, skills.ErrVerification), errors.Is(err, skills.ErrInvalidEntry):
		return &coded{exitProtocol, err}
	}
	return err
}

// badSkills joins the problems of skills into an error, nil without any.
func badSkills(faults []error) error {
	if len(faults) == 0 {
		return nil
	}
	return &coded{exitProtocol, errors.Join(faults...)}
}

func sizeOfSkill(s *skills.Skill) string {
	if s.Dynamic {
		return "dynamic"
	}
	total := int64(0)
	for _, f := range s.Files {
		total += min(f.Size, skills.MaxBytes) // a server can report any size
	}
	return counted(len(s.Files), "file") + ", " + formatBytes(int(total))
}

func counted(n int, thing string) string {
	if n == 1 {
		return "1 " + thing
	}
	return fmt.Sprintf("%d %ss", n, thing)
}
