package skills

import (
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

// Options are how skills are served. The zero value, or nil, is right for most servers.
type Options struct {
	// Prefix is what the URIs of all skills begin with: a scheme, "://" and any number of folders, with a slash at the end,
	// such as "skill://acme/". Default: "skill://".
	Prefix string
	// Cache says how long clients may keep lists, descriptions and files. Default: not at all. On a server with
	// [mcp.ServerOptions.Visible] nothing is public.
	Cache mcp.Cache
	// PageSize is the number of skills, or of files of a folder, in one answer; fewer if they would be large. Default: 100.
	PageSize int
	// NoDirectoryRead leaves out the method with which clients look into folders. They know the files of a skill without
	// it, from the skill's description.
	NoDirectoryRead bool
	// MaxBytes bounds the bytes of all files together, which are held in memory. Default: 256 MiB.
	MaxBytes int64
}

// Defaults of Options.
const (
	defaultPrefix   = "skill://"
	defaultPageSize = 100
	// defaultMaxBytes is sixteen of the largest skills, or thousands of usual ones.
	defaultMaxBytes = 256 << 20
)

// A Catalog is the skills that a server serves. Its methods are safe for concurrent use.
type Catalog struct {
	server  *mcp.Server
	fsys    fs.FS
	opts    Options
	current atomic.Pointer[snapshot]

	mu         sync.Mutex // guards the field below, and is held while skills are replaced
	registered map[string]*mcp.Registration[mcp.Resource]
}

// Serve serves every skill of a file system: every folder with a SKILL.md, which becomes the resource
// skill://path/of/the/folder/SKILL.md, as do the files in and below it. A folder may lie in another skill's folder: its
// files then belong to both. If the top of the file system has a SKILL.md, that is a skill by the name in its frontmatter.
// Files that belong to no skill are not served, nor are those whose names begin with a dot.
//
// The files are read now, and held in memory, so that the digests that clients check are always those of the files that
// they read. [Catalog.Reload] reads them again.
//
// It is an error, and nothing is served, if one of the skills is not as skills have to be: if SKILL.md has no valid
// frontmatter, its name is not that of its folder, a skill has more than [MaxFiles] files or [MaxBytes] bytes, a file has
// more than 11 MiB, or there are symbolic links, which are not followed; or if there are files, and none of them is a
// SKILL.md: this is the wrong folder. In an empty one, the skills are still to come. If others may write to a folder of the
// disk, open it with [os.OpenRoot] and serve its FS, not an [os.DirFS]: no link that they put there at the wrong moment
// leads out of that.
//
// Skills and their files are resources like all others, and are listed among them. A caller who may not see one of the files
// of a skill, by [mcp.ServerOptions.Visible], does not see the skill.
//
// Serve panics if the options cannot work, the server has skills already, or a URI is taken.
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
	if len(snap.skills) == 0 && snap.strays > 0 {
		return nil, fmt.Errorf("skills: none of the %d files is a %s: this is no folder of skills", snap.strays, skillFile)
	}
	s.HandleMethod(methodList, mcp.HandlerFunc(c.list))
	s.HandleMethod(methodGet, mcp.HandlerFunc(c.get))
	settings := map[string]bool{}
	if !c.opts.NoDirectoryRead {
		s.HandleMethod(methodDir, mcp.HandlerFunc(c.directory))
		settings["directoryRead"] = true
	}
	s.AddExtension(ID, settings)
	// The extension commits to the capability of resources, of which there may be none yet.
	mcp.AddFS(s, c.opts.Prefix, embed.FS{})
	c.replace(snap)
	return c, nil
}

func (o *Options) fill() error {
	if o.Prefix == "" {
		o.Prefix = defaultPrefix
	}
	if o.PageSize == 0 {
		o.PageSize = defaultPageSize
	}
	if o.MaxBytes == 0 {
		o.MaxBytes = defaultMaxBytes
	}
	const maxPrefix = 1 << 10 // leaves room for the longest paths
	parsed, err := url.Parse(o.Prefix)
	switch {
	case err != nil || parsed.Scheme == "" || !strings.Contains(o.Prefix, "://") || !strings.HasSuffix(o.Prefix, "/") ||
		strings.ContainsAny(o.Prefix, "?#") || len(o.Prefix) > maxPrefix:
		return fmt.Errorf("option Prefix is %.128q, want a URI that ends with a slash, such as skill://acme/", o.Prefix)
	case o.PageSize < 0:
		return fmt.Errorf("option PageSize is %d, want a positive number", o.PageSize)
	case o.MaxBytes < 0:
		return fmt.Errorf("option MaxBytes is %d, want a positive number", o.MaxBytes)
	case o.Cache.TTL < 0:
		return fmt.Errorf("invalid option Cache.TTL %v: must not be negative", o.Cache.TTL)
	}
	return nil
}

// Reload reads the file system again, and serves what it holds now. Clients that listen are told what has changed. If
// there is an error, of the kinds that [Serve] has, the skills stay as they were; that no skill is left is none. Files that
// change while they are read may be served half old and half new, until the next Reload.
func (c *Catalog) Reload() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	snap, err := read(c.fsys, c.opts.Prefix, c.opts.MaxBytes)
	if err != nil {
		return fmt.Errorf("skills: reload: %w", err)
	}
	c.replaceLocked(snap)
	return nil
}

// Skills returns the skills that are served, sorted by URI. They are not to be changed.
func (c *Catalog) Skills() []*Skill {
	snap := c.current.Load()
	all := make([]*Skill, len(snap.skills))
	for i, e := range snap.skills {
		all[i] = e.skill
	}
	return all
}

func (c *Catalog) replace(snap *snapshot) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.replaceLocked(snap)
}

// replaceLocked makes a snapshot the current one. From then on its files are read; the list of resources follows.
func (c *Catalog) replaceLocked(snap *snapshot) {
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
				r.Name, r.Description, r.MIMEType, r.Size = f.resource.Name, f.resource.Description, f.resource.MIMEType, f.resource.Size
			})
			c.server.ResourceUpdated(uri)
		}
	}
}

// readResource reads a file of a skill.
func (c *Catalog) readResource(_ context.Context, uri string) (*mcp.ResourceContents, error) {
	f, ok := c.current.Load().files[uri]
	if !ok {
		return nil, fs.ErrNotExist
	}
	return f.contents, nil
}
