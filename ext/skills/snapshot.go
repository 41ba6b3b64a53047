package skills

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"slices"
	"strings"

	jsonv2 "github.com/go-json-experiment/json"

	"github.com/patchbay-mcp/patchbay/mcp"
)

// Limits of a file system with skills.
const (
	// maxEntries limits files and directories to the length of a resource list that clients accept.
	maxEntries = 10_000
	// maxDepth limits nested directories and, together with maxName, the length of URIs.
	maxDepth = 16
	// maxName limits the name of a file or directory, as most file systems do.
	maxName = 255
	// maxFile limits the size of one file: in base64 it fits into 16 MiB, the limit of clients.
	maxFile = 11 << 20
)

// A snapshot holds all skills of a file system in memory, so that files and digests always match.
type snapshot struct {
	skills   []*entry // sorted by URI
	byURI    map[string]*entry
	files    map[string]*file
	dirs     map[string][]*mcp.Resource // the entries of each directory, sorted by URI
	unserved int                        // number of files that belong to no skill
}

// An entry is a skill with its files.
type entry struct {
	skill   *Skill
	encoded json.RawMessage
	files   []*file
}

// A file is a file of a skill, or of several nested skills.
type file struct {
	File
	resource *mcp.Resource
	contents *mcp.ResourceContents
}

// A reader reads a snapshot.
type reader struct {
	fsys   fs.FS
	prefix string // of URIs
	base   string // of paths: the name of the skill in the root, or empty
	limit  int64  // bytes that may still be read
	paths  []string
	dirs   []string
	seen   map[string]fs.FileInfo // of the files, during the walk
	data   map[string][]byte
	snap   *snapshot
}

// read reads all skills of a file system. The error lists all invalid skills.
func read(fsys fs.FS, prefix string, limit int64) (*snapshot, error) {
	r := &reader{
		fsys: fsys, prefix: prefix, limit: limit, seen: map[string]fs.FileInfo{}, data: map[string][]byte{},
		snap: &snapshot{byURI: map[string]*entry{}, files: map[string]*file{}, dirs: map[string][]*mcp.Resource{}},
	}
	if err := fs.WalkDir(fsys, ".", r.walk); err != nil {
		return nil, err
	}
	roots := r.roots()
	if err := r.readFiles(roots); err != nil {
		return nil, err
	}
	var faults []error
	for _, root := range roots {
		if err := r.addSkill(root); err != nil {
			faults = append(faults, fmt.Errorf("skill %q: %w", root, err))
		}
	}
	if len(faults) > 0 {
		return nil, errors.Join(faults...)
	}
	r.addDirs(roots)
	slices.SortFunc(r.snap.skills, func(a, b *entry) int { return strings.Compare(a.skill.URI, b.skill.URI) })
	return r.snap, nil
}

// walk collects files and directories. It skips dot files: they belong to tools or hold secrets.
func (r *reader) walk(name string, d fs.DirEntry, err error) error {
	base := path.Base(name)
	switch {
	case err != nil:
		return err
	case name == ".":
		return nil
	case strings.HasPrefix(base, ".") && d.IsDir():
		return fs.SkipDir
	case strings.HasPrefix(base, "."):
		return nil
	case len(r.paths)+len(r.dirs) == maxEntries:
		return fmt.Errorf("more than %d files and directories", maxEntries)
	case len(base) > maxName || strings.Count(name, "/") >= maxDepth:
		return fmt.Errorf("%q: the name is longer than %d bytes, or the path has more than %d directories", name,
			maxName, maxDepth)
	case d.IsDir():
		r.dirs = append(r.dirs, name)
		return nil
	case d.Type()&fs.ModeSymlink != 0:
		return fmt.Errorf("%q is a symbolic link, which is not followed", name)
	case !d.Type().IsRegular():
		return fmt.Errorf("%q is not a regular file", name)
	case base != skillFile && strings.EqualFold(base, skillFile):
		return fmt.Errorf("%q: want %s", name, skillFile)
	}
	r.paths = append(r.paths, name)
	r.seen[name], err = d.Info()
	return err
}

// roots returns the directories of skills. The root is first: its name is part of all other paths.
func (r *reader) roots() (roots []string) {
	for _, name := range r.paths {
		switch root := path.Dir(name); {
		case path.Base(name) != skillFile:
		case root == ".":
			roots = slices.Insert(roots, 0, root)
		default:
			roots = append(roots, root)
		}
	}
	return roots
}

func isWithin(dir, name string) bool {
	return dir == "." || name == dir || strings.HasPrefix(name, dir+"/")
}

func (r *reader) readFiles(roots []string) error {
	byFold := map[string]string{}
	for _, name := range r.paths {
		if !slices.ContainsFunc(roots, func(root string) bool { return isWithin(root, name) }) {
			r.snap.unserved++
			continue
		}
		folded := strings.ToLower(name)
		if other, ok := byFold[folded]; ok {
			return fmt.Errorf("%q and %q differ in case only, and are the same file on some systems", other, name)
		}
		byFold[folded] = name
		data, err := r.readFile(name)
		if err != nil {
			return err
		}
		r.data[name] = data
	}
	return nil
}

func (r *reader) readFile(name string) ([]byte, error) {
	f, err := r.fsys.Open(name)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	info, err := f.Stat()
	switch {
	case err != nil:
		return nil, err
	case !info.Mode().IsRegular() || replaced(r.seen[name], info):
		return nil, fmt.Errorf("%q was replaced while the skills were read: %w", name, fs.ErrInvalid)
	}
	data, err := io.ReadAll(io.LimitReader(f, min(maxFile, r.limit)+1))
	switch {
	case err != nil:
		return nil, err
	case len(data) > maxFile:
		return nil, fmt.Errorf("%q has more than %d bytes", name, maxFile)
	case int64(len(data)) > r.limit:
		return nil, errors.New("the skills are larger than Options.MaxBytes")
	}
	r.limit -= int64(len(data))
	return data, nil
}

// replaced reports whether an opened file differs from the file of the walk, because it was
// replaced by a link. It returns false for file systems whose files [os.SameFile] cannot compare.
func replaced(seen, opened fs.FileInfo) bool {
	return os.SameFile(opened, opened) && !os.SameFile(seen, opened)
}

func (r *reader) uri(name string) string {
	name = path.Join(r.base, name)
	if name == "." {
		return strings.TrimSuffix(r.prefix, "/")
	}
	return r.prefix + escapePath(name)
}

func (r *reader) addSkill(root string) error {
	text := r.data[path.Join(root, skillFile)]
	front, _, err := parseFrontmatter(text)
	if err != nil {
		return err
	}
	if root == "." {
		// An fs.FS does not know the name of its root.
		var named struct {
			Name string `json:"name"`
		}
		if err := jsonv2.Unmarshal(front, &named); err != nil {
			return err
		}
		if err := checkName(named.Name); err != nil {
			return err
		}
		r.base = named.Name
	}
	e := &entry{}
	var files []wireFile
	for _, name := range r.paths {
		if isWithin(root, name) {
			f := r.file(name)
			e.files = append(e.files, f)
			files = append(files, wireFile{f.URI, f.Digest, &f.Size})
		}
	}
	resources, err := jsonv2.Marshal(files)
	if err != nil {
		return err
	}
	w := wireSkill{URI: r.uri(path.Join(root, skillFile)), Frontmatter: front, Resources: resources}
	if e.encoded, err = jsonv2.Marshal(w); err != nil {
		return err
	}
	// Refuse files that a client would refuse.
	if e.skill, err = parseSkill(e.encoded); err == nil {
		err = errors.Join(e.skill.checkLimits(), e.skill.checkOwn())
	}
	if err != nil {
		return err
	}
	main := r.snap.files[w.URI]
	main.resource.Name, main.resource.Description = e.skill.Name, e.skill.Description
	main.resource.MIMEType = "text/markdown"
	r.snap.skills = append(r.snap.skills, e)
	r.snap.byURI[w.URI] = e
	return nil
}

// file returns a file, which may belong to several skills.
func (r *reader) file(name string) *file {
	uri := r.uri(name)
	if f, ok := r.snap.files[uri]; ok {
		return f
	}
	data := r.data[name]
	size := int64(len(data))
	f := &file{
		File:     File{Path: name, URI: uri, Digest: digestOf(data), Size: size},
		contents: mcp.FileContents(name, data),
	}
	f.contents.URI = uri
	f.resource = &mcp.Resource{URI: uri, Name: path.Base(name), MIMEType: f.contents.MIMEType, Size: &size}
	r.snap.files[uri] = f
	return f
}

// addDirs adds the directories of skills and their parents. Spec: skills.mdx, Directory Resources.
func (r *reader) addDirs(roots []string) {
	if r.base != "" || !strings.HasSuffix(r.prefix, "://") { // without a path the root cannot be addressed
		r.dirs = append(r.dirs, ".")
	}
	served := func(dir string) bool {
		return slices.ContainsFunc(roots, func(root string) bool { return isWithin(root, dir) || isWithin(dir, root) })
	}
	for _, dir := range r.dirs {
		if served(dir) {
			r.snap.dirs[r.uri(dir)] = []*mcp.Resource{}
		}
	}
	add := func(name string, child *mcp.Resource) {
		parent := r.uri(path.Dir(name))
		if list, ok := r.snap.dirs[parent]; ok && name != "." {
			r.snap.dirs[parent] = append(list, child)
		}
	}
	for _, f := range r.snap.files {
		add(f.Path, f.resource)
	}
	for _, dir := range r.dirs {
		if served(dir) {
			add(dir, &mcp.Resource{URI: r.uri(dir), Name: path.Base(dir), MIMEType: directoryType})
		}
	}
	for _, list := range r.snap.dirs {
		slices.SortFunc(list, func(a, b *mcp.Resource) int { return strings.Compare(a.URI, b.URI) })
	}
}
