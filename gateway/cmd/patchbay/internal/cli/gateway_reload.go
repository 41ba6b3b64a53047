package cli

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/signal"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/patchbay-mcp/patchbay/gateway/cmd/patchbay/internal/configs"
	"github.com/patchbay-mcp/patchbay/host"
)

// configPoll is how often the configuration files are looked at. A change counts when the next look
// finds no other: editors write a file in several steps. See docs/adr/0022-watching-files.md.
const configPoll = 250 * time.Millisecond

// A configWatch finds changes of configuration files, and of the records of trust.
type configWatch struct {
	paths []string
	seen  []fs.FileInfo // of the last look; nil for a file that does not exist
	dirty bool          // the last look has found a change
}

// changed looks at the files. It reports whether they have changed and, since the last look, no longer do.
func (w *configWatch) changed() bool {
	now := make([]fs.FileInfo, len(w.paths))
	for n, path := range w.paths {
		if info, err := os.Stat(path); err == nil { // through links, as Kubernetes replaces them
			now[n] = info
		}
	}
	same := w.seen != nil && slices.EqualFunc(w.seen, now, sameInfo)
	first := w.seen == nil
	w.seen = now
	if !same && !first {
		w.dirty = true
		return false
	}
	changed := w.dirty
	w.dirty = false
	return changed
}

// sameInfo reports whether a file is the same with the same content, by its times.
func sameInfo(a, b fs.FileInfo) bool {
	if a == nil || b == nil {
		return a == nil && b == nil
	}
	return os.SameFile(a, b) && a.Size() == b.Size() && a.ModTime().Equal(b.ModTime()) && a.Mode() == b.Mode()
}

// newConfigWatch returns a watch of the files of a gateway. It is nil if there is nothing to read again:
// the command line has the only server, or the file is a pipe.
func newConfigWatch(f *factory, g *gatewayRun) *configWatch {
	if g.config.fixed != nil {
		return nil
	}
	w := &configWatch{paths: configs.Places(f.Flags.config)}
	if f.Config.namesConfig() {
		if info, err := os.Stat(w.paths[0]); err == nil && !info.Mode().IsRegular() {
			return nil
		}
	}
	if store, err := trustStore(); err == nil {
		w.paths = append(w.paths, store.Dir)
	}
	if stamp, err := secretStamp(); err == nil {
		w.paths = append(w.paths, stamp)
	}
	w.changed()
	return w
}

// followConfig reloads the configuration when its files change and with SIGHUP, until the returned
// function is called. On a terminal, SIGHUP says that the terminal was closed, and ends the program.
func followConfig(ctx context.Context, f *factory, g *gatewayRun) (stop func()) {
	w := newConfigWatch(f, g)
	if w == nil {
		return func() {}
	}
	ctx, cancel := context.WithCancel(ctx)
	hangups := make(chan os.Signal, 1)
	if !f.IO.Err.terminal && !f.IO.Out.terminal {
		signal.Notify(hangups, syscall.SIGHUP)
	}
	done := make(chan struct{})
	go func() { // ends with ctx
		defer close(done)
		look := time.NewTicker(configPoll)
		defer look.Stop()
		for {
			select {
			case <-look.C:
				if w.changed() {
					reloadConfig(ctx, f, g)
				}
			case <-hangups:
				if d := reloadConfig(ctx, f, g); d != nil && d.IsEmpty() {
					f.IO.Err.printf("patchbay: reloaded the configuration: nothing has changed")
				}
			case <-ctx.Done():
				return
			}
		}
	}()
	return func() {
		signal.Stop(hangups)
		cancel()
		<-done
	}
}

// reloadConfig reads the configuration again. If it is invalid, the previous one stays in force, and the
// result is nil.
func reloadConfig(ctx context.Context, f *factory, g *gatewayRun) *host.Diff {
	d, _ := tryReload(ctx, f, g) // the error was reported
	return d
}

// tryReload is reloadConfig, with the error.
func tryReload(ctx context.Context, f *factory, g *gatewayRun) (*host.Diff, error) {
	g.reloading.Lock()
	defer g.reloading.Unlock()
	next, invalid, err := readConfig(f, g.addr)
	if err = errors.Join(append(invalid, err)...); err == nil {
		next.inputs, err = inputsOf(ctx, f, next)
	}
	if err != nil {
		g.reject(err)
		reportReload(f, g, host.Event{Err: err})
		return nil, err
	}
	restore := g.config.replace(next)
	d, err := g.host.Reload(ctx, next.file)
	if err != nil { // the host reports it
		restore()
		g.reject(err)
		return nil, err
	}
	before := g.inForce.Swap(next.file)
	if before == nil {
		before = g.config.file
	}
	if !d.IsEmpty() {
		warnMisspelt(f, next)
	}
	warnRemoved(f, before, next.file)
	if g.rejected.Swap(nil) != nil && d.IsEmpty() {
		f.IO.Err.printf("patchbay: the configuration is valid again: nothing has changed")
	}
	return d, nil
}

// reject records why the files are not in force, and since when.
func (g *gatewayRun) reject(err error) {
	text := strings.ReplaceAll(g.config.masked(err.Error()), "\n", "; ")
	text = "not used since " + time.Now().Format(time.DateTime) + ": " + shorten(cleanLine(text), maxEventShown)
	g.rejected.Store(&text)
}

// replace replaces what connections need to know of the configuration.
func (c *hostConfig) replace(next *hostConfig) (restore func()) {
	c.mu.Lock()
	defer c.mu.Unlock()
	targets, inputs := c.targets, c.inputs
	c.targets, c.inputs = next.targets, next.inputs
	return func() {
		c.mu.Lock()
		defer c.mu.Unlock()
		c.targets, c.inputs = targets, inputs
	}
}

// reportReload prints the outcome of a reload.
func reportReload(f *factory, g *gatewayRun, e host.Event) {
	if e.Err != nil {
		text := strings.ReplaceAll(g.config.masked(e.Err.Error()), "\n", "; ")
		f.IO.Err.printf("patchbay: kept the previous configuration: %s", shorten(cleanLine(text), maxEventShown))
		return
	}
	d := e.Reload
	parts := diffParts(d)
	if len(parts) > 0 {
		f.IO.Err.printf("patchbay: reloaded the configuration: %s", strings.Join(parts, "; "))
	}
	if len(d.Restart) > 0 {
		f.IO.Err.printf("patchbay: %s has changed: restart the gateway to use it", strings.Join(d.Restart, ", "))
	}
	if g.profile != "" && !slices.Contains(g.host.Profiles(), g.profile) {
		f.IO.Err.printf("patchbay: the configuration no longer has the profile %s: its clients see no servers",
			cleanLine(g.profile))
	}
}

// diffParts returns what a reload has changed, for a message.
func diffParts(d *host.Diff) (parts []string) {
	for _, part := range []struct {
		what  string
		names []string
	}{
		{"added", d.Added}, {"removed", d.Removed}, {"connecting again to", d.Changed},
		{"new settings of", d.Updated}, {"new settings:", d.Settings},
	} {
		if len(part.names) > 0 {
			parts = append(parts, part.what+" "+shownNames(part.names))
		}
	}
	return parts
}

// shownNames returns names of servers for a message.
func shownNames(names []string) string {
	const most = 20
	var shown []string
	for _, name := range names[:min(len(names), most)] {
		shown = append(shown, shorten(cleanLine(name), maxNameShown))
	}
	text := strings.Join(shown, ", ")
	if len(names) > most {
		text += fmt.Sprintf(" and %d others", len(names)-most)
	}
	return text
}
