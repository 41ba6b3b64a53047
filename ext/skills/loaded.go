package skills

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io/fs"
	"path"
	"slices"
	"strings"
	"sync"

	"github.com/patchbay-mcp/patchbay/mcp"
)

// LoadOptions configures [Load]. The zero value, or nil, is right for most hosts.
type LoadOptions struct {
	// InsecureDynamic also loads dynamic skills, whose files the server may change at any time:
	// only the frontmatter of SKILL.md is verified, and the files that are read later may not be
	// the files that the user consented to.
	InsecureDynamic bool
}

// A Loaded is a skill in use. Its files are verified against the [Skill] that it was loaded with.
// Its methods are safe for concurrent use.
//
// Spec: skills.mdx, Integrity and Verification.
type Loaded struct {
	skill  *Skill
	root   string
	client *mcp.Client
	main   []byte
	body   []byte

	mu    sync.Mutex // guards the fields below
	cache map[string][]byte
	read  int64 // bytes that were read of a dynamic skill
}

// Load reads the SKILL.md of a skill and verifies its size, digest and frontmatter. It reads no
// other file. The host asks the user for consent before it calls Load.
//
// The error is an [ErrVerification] if SKILL.md does not match s, an [ErrDynamic] if s is dynamic,
// an [ErrTooLarge], or the error of the request. The skill must not be used then.
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
	l := &Loaded{skill: s, root: root, client: c, cache: map[string][]byte{}}
	if l.main, err = l.Read(ctx, skillFile); err != nil {
		return nil, err
	}
	var front json.RawMessage
	front, l.body, err = parseFrontmatter(l.main)
	switch {
	case err != nil:
		return nil, fmt.Errorf("skills: %.256q: %w: %w", s.URI, ErrFrontmatter, err)
	case !sameFrontmatter(front, s.Frontmatter):
		return nil, fmt.Errorf("skills: %.256q: %w", s.URI, ErrFrontmatter)
	}
	return l, nil
}

// Skill returns the Skill that was passed to [Load].
func (l *Loaded) Skill() *Skill { return l.skill }

// Markdown returns the whole SKILL.md, with its frontmatter.
func (l *Loaded) Markdown() string { return string(l.main) }

// Body returns the text of SKILL.md after its frontmatter. It comes from the server and must not be
// trusted: a host that passes it to a model names the server.
func (l *Loaded) Body() string { return string(l.body) }

// Read reads and verifies a file of the skill. The name is a path relative to the skill's
// directory, as in SKILL.md: "references/FORMS.md". Files are cached, unless the skill is dynamic.
// A SKILL.md in a subdirectory is an ordinary file here.
//
// The error is an [ErrVerification] if the file does not match the skill's description. It is an
// [ErrUnlisted], without a request to the server, if the file is not listed there; the skill may
// changed, see [Get].
func (l *Loaded) Read(ctx context.Context, name string) ([]byte, error) {
	clean := path.Clean(name)
	if !fs.ValidPath(clean) || clean == "." || strings.ContainsAny(clean, "\\\x00") {
		return nil, fmt.Errorf("skills: %.256q: read %.256q: %w", l.skill.URI, name, ErrUnlisted)
	}
	l.mu.Lock()
	cached, ok := l.cache[clean]
	l.mu.Unlock()
	if ok {
		return bytes.Clone(cached), nil
	}
	data, err := l.fetch(ctx, clean)
	if err != nil {
		return nil, fmt.Errorf("skills: %.256q: read %.256q: %w", l.skill.URI, name, err)
	}
	return data, nil
}

// Files returns the sorted paths of the files and directories in a directory of the skill, by its
// description. Directories end with a slash. "." is the skill's directory. Files returns nil for a
// dynamic skill: use [ReadDir].
//
// Spec: skills.mdx, Directory Reads and the Held Entry.
func (l *Loaded) Files(dir string) []string {
	prefix := path.Clean(dir) + "/"
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
		// A cached response may be older than the description.
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
	l.cache[name] = bytes.Clone(data)
	return data, nil
}

// fetchDynamic reads a file of a dynamic skill, up to MaxBytes in all.
func (l *Loaded) fetchDynamic(ctx context.Context, name string) ([]byte, error) {
	uri := l.root + "/" + escapePath(name)
	if name == skillFile {
		uri = l.skill.URI
	}
	l.mu.Lock()
	full := l.read >= MaxBytes
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
	if l.read += int64(len(data)); l.read > MaxBytes {
		return nil, ErrTooLarge
	}
	return data, nil
}

func (f *File) check(data []byte) error {
	if int64(len(data)) != f.Size {
		return fmt.Errorf("%w: got %d bytes, want %d", ErrSize, len(data), f.Size)
	}
	if digest := digestOf(data); digest != f.Digest {
		return fmt.Errorf("%w: got %s, want %s", ErrDigest, digest, f.Digest)
	}
	return nil
}

func readFile(ctx context.Context, c *mcp.Client, uri string) ([]byte, error) {
	res, err := c.ReadResource(ctx, uri)
	if err != nil {
		return nil, err
	}
	if len(res.Contents) != 1 || res.Contents[0] == nil || res.Contents[0].URI != uri {
		return nil, fmt.Errorf("%w: the result does not have the contents of this file alone", ErrVerification)
	}
	part := res.Contents[0]
	if part.Blob != nil {
		return part.Blob, nil
	}
	return []byte(part.Text), nil
}
