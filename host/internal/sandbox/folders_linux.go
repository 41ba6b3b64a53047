package sandbox

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"

	"github.com/patchbay-mcp/patchbay/host/config"
)

// systemFolders are the folders with the programs and libraries of the system.
var systemFolders = []string{"/usr", "/bin", "/sbin", "/lib", "/lib32", "/lib64", "/libx32"}

// isForbidden reports whether a sandbox must not contain a folder: the root, which contains all others, and
// folders of the kernel.
func isForbidden(path string) bool {
	return path == "/" || slices.ContainsFunc([]string{"/proc", "/sys", "/dev"}, func(dir string) bool {
		return isWithin(path, dir)
	})
}

// isWithin reports whether a clean absolute path is a folder or within the folder.
func isWithin(path, dir string) bool { return path == dir || strings.HasPrefix(path, dir+"/") }

// A folder of the machine in the sandbox.
type folder struct {
	source, path string   // of the machine, and of the sandbox
	links        []string // of the machine, by which the path leads to the source
	write        bool
}

// resolve returns the folders of the settings, outer folders first. A folder whose path contains symbolic
// links is in the sandbox under this path and under its real path.
func resolve(s *config.Sandbox) (all []folder, err error) {
	for i, path := range slices.Concat(s.Read, s.Write) {
		real, links, err := follow(path)
		if err != nil {
			return nil, &Error{fmt.Sprintf("the folder %q cannot be used: %v: "+
				"create it, or remove it from the settings", path, err)}
		}
		info, err := os.Stat(real)
		if err != nil || !info.IsDir() {
			return nil, &Error{fmt.Sprintf("%q is not a folder: want the folder that contains it", path)}
		}
		if isForbidden(real) {
			return nil, &Error{fmt.Sprintf("%q is %q: want a folder other than /, and outside of /proc, /sys and /dev",
				path, real)}
		}
		for _, p := range slices.Compact([]string{path, real}) {
			all = append(all, folder{source: real, path: p, links: links, write: i >= len(s.Read)})
		}
	}
	for _, f := range all {
		for _, outer := range all {
			if outer.write && f.dependsOn(outer) {
				return nil, &Error{fmt.Sprintf("the folder %q is within %q, where the server can replace it: remove it",
					f.path, outer.path)}
			}
		}
	}
	slices.SortStableFunc(all, func(a, b folder) int { return strings.Compare(a.path, b.path) })
	return all, nil
}

// dependsOn reports whether a process that can write to another folder can replace the folder, or a link to it.
func (f *folder) dependsOn(outer folder) bool {
	for _, path := range append([]string{f.source, f.path}, f.links...) {
		for _, dir := range []string{outer.source, outer.path} {
			if path != dir && isWithin(path, dir) {
				return true
			}
		}
	}
	return false
}

// maxLinks limits the symbolic links of a path, as Linux does.
const maxLinks = 40

// follow returns the real path of a clean absolute path, and the real paths of the symbolic links that it follows.
func follow(path string) (real string, links []string, err error) {
	real = "/"
	for rest := path[1:]; rest != ""; {
		var name string
		name, rest, _ = strings.Cut(rest, "/")
		at := filepath.Join(real, name) // also for "", "." and ".."
		target, err := os.Readlink(at)
		if errors.Is(err, syscall.EINVAL) { // it is no link
			real = at
			continue
		}
		if err != nil {
			return "", nil, err
		}
		if links = append(links, at); len(links) > maxLinks {
			return "", nil, &os.PathError{Op: "open", Path: path, Err: syscall.ELOOP}
		}
		if filepath.IsAbs(target) {
			real = "/"
		}
		rest = strings.TrimPrefix(target, "/") + "/" + rest
	}
	return real, links, nil
}

// checkVisible checks that a file of the machine is in the sandbox. member is the setting that names it.
func checkVisible(folders []folder, member, path string) error {
	real, err := filepath.EvalSymlinks(path)
	if err != nil {
		return &Error{fmt.Sprintf("%s %q cannot be used: %v", member, path, err)}
	}
	for _, p := range []string{path, real} {
		visible := slices.ContainsFunc(folders, func(f folder) bool { return isWithin(p, f.path) }) ||
			slices.ContainsFunc(systemFolders, func(dir string) bool { return isWithin(p, dir) })
		if !visible {
			return &Error{fmt.Sprintf("%s %q is not in the sandbox: add its folder to \"read\" of the sandbox",
				member, p)}
		}
	}
	return nil
}
