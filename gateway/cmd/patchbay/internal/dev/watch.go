package dev

import (
	"context"
	"fmt"
	"io/fs"
	"path/filepath"
	"slices"
	"strings"
	"time"
)

const (
	// pollInterval is the shortest time between two looks at the files. Builds take longer.
	pollInterval = 300 * time.Millisecond
	// pollShare bounds the share of the time that looking takes: one in this many.
	pollShare = 20
	// maxFiles bounds the files that are watched. A larger tree has output that should be ignored.
	maxFiles = 50_000
)

// ignoredDirectories have output and dependencies, not sources. Hidden ones, such as .git and .venv,
// are ignored as well.
var ignoredDirectories = []string{"node_modules", "vendor", "dist", "build", "out", "target", "bin", "obj", "tmp",
	"coverage", "__pycache__"}

// ignoredFiles are patterns of files that servers and editors write.
var ignoredFiles = []string{"*.log", "*.db", "*.db-*", "*.sqlite*", "*.tmp", "*.swp", "*~", "*.pid", "*.pyc", "*.out",
	"*.test", "#*#"}

// A Watcher looks for changed files below a directory.
type Watcher struct {
	// Dir is the directory.
	Dir string
	// Ignore are more patterns of [filepath.Match], of names or of paths below Dir.
	Ignore []string
	// Log writes a line about a problem.
	Log func(line string)

	warned bool
}

// Changes returns a channel that receives the name of a changed file, after the changes have ended.
// The goroutine that sends it ends with ctx, and then closes the channel. It polls: see docs/adr/0022.
func (w *Watcher) Changes(ctx context.Context) <-chan string {
	changes := make(chan string)
	go func() {
		defer close(changes)
		before, took := w.scan()
		for changed := ""; ; {
			if !sleep(ctx, max(pollInterval, pollShare*took)) {
				return
			}
			now, d := w.scan()
			took = d
			name := difference(before, now)
			before = now
			switch {
			case name != "":
				changed = name // wait until no more files change
				continue
			case changed == "":
				continue
			}
			select {
			case changes <- changed:
				changed = ""
			case <-ctx.Done():
				return
			}
		}
	}()
	return changes
}

func sleep(ctx context.Context, d time.Duration) bool {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return true
	case <-ctx.Done():
		return false
	}
}

// A version is what a file is recognized by.
type version struct {
	modified time.Time
	size     int64
}

// scan returns the versions of all files, and how long that took.
func (w *Watcher) scan() (files map[string]version, took time.Duration) {
	began := time.Now()
	files = map[string]version{}
	_ = filepath.WalkDir(w.Dir, func(path string, d fs.DirEntry, err error) error {
		switch {
		case err != nil && d != nil && d.IsDir():
			return fs.SkipDir // it has just been removed, or cannot be read
		case err != nil:
			return nil
		case path != w.Dir && w.ignores(path, d):
			if d.IsDir() {
				return fs.SkipDir
			}
			return nil
		case !d.Type().IsRegular():
			return nil
		}
		if len(files) == maxFiles {
			w.warn()
			return fs.SkipAll
		}
		if info, err := d.Info(); err == nil {
			files[path] = version{info.ModTime(), info.Size()}
		}
		return nil
	})
	return files, time.Since(began)
}

func (w *Watcher) warn() {
	if !w.warned {
		w.warned = true
		w.Log(fmt.Sprintf("more than %d files: the others are not watched; ignore directories with --ignore", maxFiles))
	}
}

func (w *Watcher) ignores(path string, d fs.DirEntry) bool {
	name := d.Name()
	if strings.HasPrefix(name, ".") || d.IsDir() && slices.Contains(ignoredDirectories, name) {
		return true
	}
	relative, err := filepath.Rel(w.Dir, path)
	matches := func(pattern string) bool {
		byName, _ := filepath.Match(pattern, name)
		byPath, _ := filepath.Match(filepath.FromSlash(strings.TrimSuffix(pattern, "/")), relative)
		return byName || err == nil && byPath
	}
	return !d.IsDir() && slices.ContainsFunc(ignoredFiles, matches) || slices.ContainsFunc(w.Ignore, matches)
}

// difference returns the name of a file that has changed, has come or has gone, and how many more.
func difference(before, now map[string]version) string {
	var changed []string
	for path, v := range now {
		if old, ok := before[path]; !ok || old.size != v.size || !old.modified.Equal(v.modified) {
			changed = append(changed, path)
		}
	}
	for path := range before {
		if _, ok := now[path]; !ok {
			changed = append(changed, path)
		}
	}
	if len(changed) == 0 {
		return ""
	}
	slices.Sort(changed)
	text := filepath.Base(changed[0])
	if more := len(changed) - 1; more > 0 {
		text += fmt.Sprintf(" and %d more", more)
	}
	return text + " changed"
}
