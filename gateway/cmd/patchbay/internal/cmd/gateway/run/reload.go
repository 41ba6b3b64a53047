package run

import (
	"context"
	"errors"
	"io/fs"
	"os"
	"os/signal"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/patchbay-mcp/patchbay/gateway/cmd/patchbay/internal/cmd/gateway/keys"
	"github.com/patchbay-mcp/patchbay/gateway/cmd/patchbay/internal/cmdutil"
	"github.com/patchbay-mcp/patchbay/gateway/cmd/patchbay/internal/configs"
	"github.com/patchbay-mcp/patchbay/gateway/cmd/patchbay/internal/hosting"
	"github.com/patchbay-mcp/patchbay/gateway/cmd/patchbay/internal/target"
	"github.com/patchbay-mcp/patchbay/gateway/cmd/patchbay/internal/term"
	"github.com/patchbay-mcp/patchbay/host"
)

// configPoll is how often the configuration files are looked at. A change counts when the next look
// finds no other: editors write a file in several steps. See docs/adr/0022-watching-files.md.
const configPoll = 250 * time.Millisecond

// A configWatch finds changes of configuration files, and of the records of trust.
type configWatch struct {
	paths []string
	seen  []fs.FileInfo // of the last look; nil for a file that does not exist
	dirty bool          // whether the last look found a change
}

// changed looks at the files. It reports whether they changed earlier and are stable since.
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

// newConfigWatch returns a watch of the files of a gateway, or nil if no file can be read again:
// the command line names the only server, or the file is a pipe.
func newConfigWatch(f *cmdutil.Factory, g *Run) *configWatch {
	if g.Config.Fixed != nil {
		return nil
	}
	w := &configWatch{paths: configs.Places(f.Flags.Config)}
	if f.Config.NamesConfig() {
		if info, err := os.Stat(w.paths[0]); err == nil && !info.Mode().IsRegular() {
			return nil
		}
	}
	if store, err := target.TrustStore(); err == nil {
		w.paths = append(w.paths, store.Dir)
	}
	if stamp, err := keys.SecretStamp(); err == nil {
		w.paths = append(w.paths, stamp)
	}
	w.changed()
	return w
}

// followConfig reloads the configuration when its files change and with SIGHUP, until the returned
// function is called. On a terminal, SIGHUP says that the terminal was closed, and ends the program.
func followConfig(ctx context.Context, f *cmdutil.Factory, g *Run) (stop func()) {
	w := newConfigWatch(f, g)
	if w == nil {
		return func() {}
	}
	ctx, cancel := context.WithCancel(ctx)
	hangups := make(chan os.Signal, 1)
	if !f.IO.Err.Terminal && !f.IO.Out.Terminal {
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
					f.IO.Err.Printf("patchbay: reloaded the configuration: nothing has changed")
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

// reloadConfig reads the configuration again. If the configuration is invalid, the previous one
// stays in force, and reloadConfig returns nil.
func reloadConfig(ctx context.Context, f *cmdutil.Factory, g *Run) *host.Diff {
	d, _ := tryReload(ctx, f, g) // the error was reported
	return d
}

// tryReload is reloadConfig, with the error.
func tryReload(ctx context.Context, f *cmdutil.Factory, g *Run) (*host.Diff, error) {
	g.reloading.Lock()
	defer g.reloading.Unlock()
	next, invalid, err := hosting.ReadConfig(f, g.Addr)
	if err = errors.Join(append(invalid, err)...); err == nil {
		next.Inputs, err = hosting.InputsOf(ctx, f, next)
	}
	if err != nil {
		g.reject(err)
		reportReload(f, g, host.Event{Err: err})
		return nil, err
	}
	restore := g.Config.Replace(next)
	d, err := g.Host.Reload(ctx, next.File)
	if err != nil { // the host reports it
		restore()
		g.reject(err)
		return nil, err
	}
	before := g.inForce.Swap(next.File)
	if before == nil {
		before = g.Config.File
	}
	if !d.IsEmpty() {
		hosting.WarnMisspelt(f, next)
	}
	hosting.WarnRemoved(f, before, next.File)
	if g.rejected.Swap(nil) != nil && d.IsEmpty() {
		f.IO.Err.Printf("patchbay: the configuration is valid again: nothing has changed")
	}
	return d, nil
}

// reject records why the files are not in force, and since when.
func (g *Run) reject(err error) {
	text := strings.ReplaceAll(g.Config.Masked(err.Error()), "\n", "; ")
	text = "not used since " + time.Now().Format(time.DateTime) + ": " + term.Shorten(term.CleanLine(text),
		hosting.MaxEventShown)
	g.rejected.Store(&text)
}

// reportReload prints the outcome of a reload.
func reportReload(f *cmdutil.Factory, g *Run, e host.Event) {
	if e.Err != nil {
		text := strings.ReplaceAll(g.Config.Masked(e.Err.Error()), "\n", "; ")
		f.IO.Err.Printf("patchbay: kept the previous configuration: %s", term.Shorten(term.CleanLine(text),
			hosting.MaxEventShown))
		return
	}
	d := e.Reload
	parts := DiffParts(d)
	if len(parts) > 0 {
		f.IO.Err.Printf("patchbay: reloaded the configuration: %s", strings.Join(parts, "; "))
	}
	if len(d.Restart) > 0 {
		f.IO.Err.Printf("patchbay: %s has changed: restart the gateway to use it", strings.Join(d.Restart, ", "))
	}
	if g.Profile != "" && !slices.Contains(g.Host.Operator().Profiles(), g.Profile) {
		f.IO.Err.Printf("patchbay: the configuration no longer has the profile %s: its clients see no servers",
			term.CleanLine(g.Profile))
	}
}

// DiffParts describes the changes of a reload, for a message.
func DiffParts(d *host.Diff) (parts []string) {
	for _, part := range []struct {
		what  string
		names []string
	}{
		{"added", d.Added}, {"removed", d.Removed}, {"connecting again to", d.Changed},
		{"new settings of", d.Updated}, {"new settings:", d.Settings},
	} {
		if len(part.names) > 0 {
			parts = append(parts, part.what+" "+hosting.ShownNames(part.names))
		}
	}
	return parts
}
