package skills

import (
	"bytes"
	"context"
	"fmt"
	"io/fs"
	"path"
	"slices"
	"strings"
	"sync"

	"github.com/patchbay-mcp/patchbay/mcp"
)

// LoadOptions are how a skill is loaded. The zero value, or nil, is right for most hosts.
type LoadOptions struct {
	// InsecureDynamic also loads skills that are dynamic, whose files may be anything at any time: only the frontmatter
	// of SKILL.md can be checked, and what the user has agreed to is not what is read later.
	InsecureDynamic bool
}

// A Loaded is a skill that is in use, and what its files are checked against until the host is done with it: the
// description that it was loaded by. Its methods are safe for concurrent use.
//
// Spec: skills.mdx, Integrity and Verification.
type Loaded struct {
	skill  *Skill
	root   string
	client *mcp.Client
	main   []byte
	body   []byte

	mu   sync.Mutex // guards the fields below
	kept map[string][]byte
	got  int64 // bytes that were read of a dynamic skill
}

// Load begins to use a skill: it reads its SKILL.md, and checks size, digest and frontmatter. No other file is read. Whether
// the user agrees to that is asked before.
//
// The error is an [ErrVerification] if SKILL.md is not what the description says; [ErrDynamic] if that says nothing;
// [ErrTooLarge]; or that there is no answer. Nothing of the skill may be used then.
//
// Spec: skills.mdx, Verification on Read, Frontmatter Verification, Lazy Retrieval.
func Load(ctx context.Context, c *mcp.Client, s *Skill, opts *LoadOptions) (*Loaded, error) {
	if opts == nil {
		opts = &LoadOptions{}
	}
	if s.Dynamic && !opts.InsecureDynamic {
		return nil, fmt.Errorf("skills: load %.256q: %w", s.URI, ErrDynamic)
	}
	if err := s.checkLimits(); err != nil {
		return nil, fmt.Errorf("skills: load %.256q: %w", s.URI, err)
	}
	root, _, err := rootOf(s.URI)
	if err != nil {
		return nil, fmt.Errorf("skills: load: %w: %w", ErrInvalidEntry, err)
	}
	l := &Loaded{skill: s, root: root, client: c, kept: map[string][]byte{}}
	if l.main, err = l.Read(ctx, skillFile); err != nil {
		return nil, err
	}
	front, err := parseFrontmatter(l.main)
	if err != nil {
		return nil, fmt.Errorf("skills: %.256q: %w: %w", s.URI, ErrFrontmatter, err)
	}
	if !sameFrontmatter(front, s.Frontmatter) {
		return nil, fmt.Errorf("skills: %.256q: %w", s.URI, ErrFrontmatter)
	}
	if _, l.body, err = splitFrontmatter(l.main); err != nil {
		return nil, fmt.Errorf("skills: %.256q: %w: %w", s.URI, ErrFrontmatter, err)
	}
	return l, nil
}

// Skill is the description that the skill was loaded by.
func (l *Loaded) Skill() *Skill { return l.skill }

// Markdown is the whole SKILL.md, with its frontmatter.
func (l *Loaded) Markdown() string { return string(l.main) }

// Body is the text of SKILL.md behind its frontmatter. It is text of a stranger: a host that shows it to a model says whose.
func (l *Loaded) Body() string { return string(l.body) }

// Read reads a file of the skill and checks it. The name is a path in the skill's folder, as SKILL.md has it:
// "references/FORMS.md". What was read is kept for the next time, unless the skill is dynamic. A SKILL.md in a folder
// below is a file like all others, whose frontmatter means nothing here.
//
// The error is an [ErrVerification] if the file is not what the description says. It is an [ErrUnlisted], and the server
// is not asked, if it is none of the skill's files: the skill may have changed, see [Get].
func (l *Loaded) Read(ctx context.Context, name string) ([]byte, error) {
	clean := path.Clean(name)
	if !fs.ValidPath(clean) || clean == "." || strings.ContainsAny(clean, "\\\x00") {
		return nil, fmt.Errorf("skills: %.256q: read %.256q: %w", l.skill.URI, name, ErrUnlisted)
	}
	if data, ok := l.keeps(clean); ok {
		return data, nil
	}
	data, err := l.fetch(ctx, clean)
	if err != nil {
		return nil, fmt.Errorf("skills: %.256q: read %.256q: %w", l.skill.URI, name, err)
	}
	return data, nil
}

// Files are the paths in a folder of the skill, by its description: those of files as they are, those of folders with a
// slash at their end, sorted. The name "." is the skill's own folder. There are none if the skill is dynamic: [ReadDir]
// asks the server.
//
// Spec: skills.mdx, Directory Reads and the Held Entry.
func (l *Loaded) Files(folder string) []string {
	prefix := path.Clean(folder) + "/"
	if prefix == "./" {
		prefix = ""
	}
	var names []string
	for _, f := range l.skill.Files {
		rest, ok := strings.CutPrefix(f.Path, prefix)
		if !ok {
			continue
		}
		if i := strings.IndexByte(rest, '/'); i >= 0 {
			rest = rest[:i+1]
		}
		names = append(names, prefix+rest)
	}
	slices.Sort(names)
	return slices.Compact(names)
}

func (l *Loaded) keeps(name string) ([]byte, bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	data, ok := l.kept[name]
	return bytes.Clone(data), ok
}

// fetch asks the server for a file.
func (l *Loaded) fetch(ctx context.Context, name string) ([]byte, error) {
	if l.skill.Dynamic {
		return l.fetchDynamic(ctx, name)
	}
	i := slices.IndexFunc(l.skill.Files, func(f File) bool { return f.Path == name })
	if i < 0 {
		return nil, ErrUnlisted
	}
	f := &l.skill.Files[i]
	data, err := readFile(ctx, l.client, f.URI)
	if err == nil && f.check(data) != nil {
		// An answer that the client has kept may be older than the description.
		data, err = readFile(mcp.WithCallOptions(ctx, mcp.CallOptions{NoCache: true}), l.client, f.URI)
	}
	if err != nil {
		return nil, err
	}
	if err := f.check(data); err != nil {
		return nil, err
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.kept[name] = bytes.Clone(data)
	return data, nil
}

// fetchDynamic reads what cannot be checked, up to the size of a skill.
//
// Spec: skills.mdx, Limits.
func (l *Loaded) fetchDynamic(ctx context.Context, name string) ([]byte, error) {
	uri := l.root + "/" + escapePath(name)
	if name == skillFile {
		uri = l.skill.URI
	}
	l.mu.Lock()
	full := l.got >= MaxBytes
	l.mu.Unlock()
	if full {
		return nil, ErrTooLarge
	}
	data, err := readFile(ctx, l.client, uri)
	if err != nil {
		return nil, err
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.got += int64(len(data)); l.got > MaxBytes {
		return nil, ErrTooLarge
	}
	return data, nil
}

// check holds the bytes of a file to its description.
func (f *File) check(data []byte) error {
	if int64(len(data)) != f.Size {
		return fmt.Errorf("%w: %d bytes, not %d", ErrSize, len(data), f.Size)
	}
	if digest := digestOf(data); digest != f.Digest {
		return fmt.Errorf("%w: %s, not %s", ErrDigest, digest, f.Digest)
	}
	return nil
}

// readFile reads a resource that is one file.
func readFile(ctx context.Context, c *mcp.Client, uri string) ([]byte, error) {
	res, err := c.ReadResource(ctx, uri)
	if err != nil {
		return nil, err
	}
	if len(res.Contents) != 1 || res.Contents[0] == nil || res.Contents[0].URI != uri {
		return nil, fmt.Errorf("%w: the answer is not this one file", ErrVerification)
	}
	part := res.Contents[0]
	if part.Blob != nil {
		return part.Blob, nil
	}
	return []byte(part.Text), nil
}
