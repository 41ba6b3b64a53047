package skills

import (
	"cmp"
	"context"
	"embed"
	"fmt"
	"io/fs"
	"net/url"
	"strings"
	"sync"
	"sync/atomic"

	"github.com/patchbay-mcp/patchbay/mcp"
)

// Options configures [Serve]. The zero value, or nil, is right for most servers.
type Options struct {
	// Prefix is the prefix of the URIs of all skills: a scheme, "://" and any number of path
	// segments, with a slash at the end, such as "skill://acme/". Default: "skill://".
	Prefix string
	// Cache says how long clients may cache lists, skills and files. Default: not at all. On a
	// server with [mcp.ServerOptions.Visible] the scope is never public.
	Cache mcp.Cache
	// PageSize is the largest number of skills, or of files of a directory, in a result. Default:
	// 100.
	PageSize int
	// NoDirectoryRead disables the method resources/directory/read. Clients know the files of a
	// skill without it.
	NoDirectoryRead bool
	// MaxBytes is the largest size of all files together, which are kept in memory. Default: 256
	// MiB.
	MaxBytes int64
}

// A Catalog holds the skills that a server serves. Its methods are safe for concurrent use.
type Catalog struct {
	server  *mcp.Server
	fsys    fs.FS
	opts    Options
	current atomic.Pointer[snapshot]

	mu         sync.Mutex // held while skills are replaced; guards the field below
	registered map[string]*mcp.Registration[mcp.Resource]
}

// Serve serves every skill of a file system: every directory with a SKILL.md. All files in and
// below it become resources, such as skill://path/of/the/directory/SKILL.md. The files of a skill
// inside the directory of another skill belong to both. A SKILL.md in the root is a skill with the
// name in its frontmatter. Other files, and files whose names begin with a dot, are not served.
//
// Serve reads all files into memory, so that the digests always match the files that clients read.
// [Catalog.Reload] reads them again.
//
// Serve returns an error, and serves no skill, if a skill is invalid: SKILL.md contains no valid
// frontmatter, its name is not that of the directory, the skill exceeds [MaxFiles] or [MaxBytes], a
// file contains more than 11 MiB, or there are symbolic links. So it does if there are files but no
// SKILL.md, since this must be the wrong directory. If other users can write to a directory on
// disk, serve the FS of [os.OpenRoot]: an [os.DirFS] may follow a link that they create while the
// files are read.
//
// The files of skills are listed as ordinary resources. A caller who may not see any of the files
// of a skill, by [mcp.ServerOptions.Visible], does not see the skill.
//
// Serve panics if the options are invalid, the server serves skills already, or a URI is taken.
//
// Spec: skills.mdx, Resource Mapping.
func Serve(s *mcp.Server, fsys fs.FS, opts *Options) (*Catalog, error) {
	c := &Catalog{server: s, fsys: fsys, registered: map[string]*mcp.Registration[mcp.Resource]{}}
	if opts != nil {
		c.opts = *opts
	}
	if err := c.opts.fill(); err != nil {
		panic("skills: Serve: " + err.Error())
	}
	snap, err := read(fsys, c.opts.Prefix, c.opts.MaxBytes)
	if err != nil {
		return nil, fmt.Errorf("skills: %w", err)
	}
	if len(snap.skills) == 0 && snap.unserved > 0 {
		return nil, fmt.Errorf("skills: the directory has %d files and no %s", snap.unserved, skillFile)
	}
	s.HandleMethod(methodList, mcp.HandlerFunc(c.list))
	s.HandleMethod(methodGet, mcp.HandlerFunc(c.get))
	settings := map[string]bool{}
	if !c.opts.NoDirectoryRead {
		s.HandleMethod(methodDir, mcp.HandlerFunc(c.directory))
		settings["directoryRead"] = true
	}
	s.AddExtension(ID, settings)
	// The extension requires the capability resources, also while there are no resources.
	mcp.AddFS(s, c.opts.Prefix, embed.FS{})
	c.replace(snap)
	return c, nil
}

func (o *Options) fill() error {
	o.Prefix = cmp.Or(o.Prefix, "skill://")
	o.PageSize = cmp.Or(o.PageSize, 100)
	o.MaxBytes = cmp.Or(o.MaxBytes, 16*MaxBytes)
	const maxPrefix = 1 << 10 // leaves room for the longest paths
	parsed, err := url.Parse(o.Prefix)
	switch {
	case err != nil || parsed.Scheme == "" || !strings.Contains(o.Prefix, "://") || !strings.HasSuffix(o.Prefix, "/") ||
		strings.ContainsAny(o.Prefix, "?#") || len(o.Prefix) > maxPrefix:
		return fmt.Errorf("invalid option Prefix %.128q: want a URI that ends with a slash, such as skill://acme/",
			o.Prefix)
	case o.PageSize < 0:
		return fmt.Errorf("option PageSize is %d, want a positive number", o.PageSize)
	case o.MaxBytes < 0:
		return fmt.Errorf("option MaxBytes is %d, want a positive number", o.MaxBytes)
	case o.Cache.TTL < 0:
		return fmt.Errorf("invalid option Cache.TTL %v: must not be negative", o.Cache.TTL)
	}
	return nil
}

// Reload reads the file system again and replaces the skills. Subscribed clients are notified of
// the changes. If it returns an error, for the same reasons as [Serve], the skills are unchanged. A
// file system without skills is not an error.
func (c *Catalog) Reload() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	snap, err := read(c.fsys, c.opts.Prefix, c.opts.MaxBytes)
	if err != nil {
		return fmt.Errorf("skills: reload: %w", err)
	}
	c.replace(snap)
	return nil
}

// Skills returns the skills that are served, sorted by URI. The caller must not change them.
func (c *Catalog) Skills() []*Skill {
	snap := c.current.Load()
	all := make([]*Skill, len(snap.skills))
	for i, e := range snap.skills {
		all[i] = e.skill
	}
	return all
}

// replace makes a snapshot the current snapshot, and then updates the registered resources.
func (c *Catalog) replace(snap *snapshot) {
	old := c.current.Swap(snap)
	if old == nil {
		old = &snapshot{}
	}
	for uri := range old.files {
		if snap.files[uri] == nil {
			c.registered[uri].Remove()
			delete(c.registered, uri)
			c.server.ResourceUpdated(uri)
		}
	}
	for uri, f := range snap.files {
		before := old.files[uri]
		switch {
		case before == nil:
			r := *f.resource
			r.Cache = c.opts.Cache
			c.registered[uri] = mcp.AddResource(c.server, &r, c.readResource)
		case before.Digest != f.Digest:
			c.registered[uri].Update(func(r *mcp.Resource) {
				r.Name, r.Description = f.resource.Name, f.resource.Description
				r.MIMEType, r.Size = f.resource.MIMEType, f.resource.Size
			})
			c.server.ResourceUpdated(uri)
		}
	}
}

func (c *Catalog) readResource(_ context.Context, uri string) (*mcp.ResourceContents, error) {
	f, ok := c.current.Load().files[uri]
	if !ok {
		return nil, fs.ErrNotExist
	}
	return f.contents, nil
}
