// Package follow applies changes of configuration files to the host of a gateway or a console.
package follow

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

	"github.com/patchbay-mcp/patchbay/gateway/cmd/patchbay/internal/cmdutil"
	"github.com/patchbay-mcp/patchbay/gateway/cmd/patchbay/internal/configs"
	"github.com/patchbay-mcp/patchbay/gateway/cmd/patchbay/internal/hosting"
	"github.com/patchbay-mcp/patchbay/gateway/cmd/patchbay/internal/target"
	"github.com/patchbay-mcp/patchbay/gateway/cmd/patchbay/internal/term"
	"github.com/patchbay-mcp/patchbay/host"
	"github.com/patchbay-mcp/patchbay/host/config"
	"github.com/patchbay-mcp/patchbay/host/state"
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

// newConfigWatch returns a watch of the files of a configuration, or nil if no file can be read
// again: the command line names the servers, or the file is a pipe.
func newConfigWatch(f *cmdutil.Factory, c *hosting.Config) *configWatch {
	if c.Fixed != nil {
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
	if stamp, err := hosting.SecretStamp(); err == nil {
		w.paths = append(w.paths, stamp)
	}
	w.changed()
	return w
}

// Announced is the kind of the announcement after which all processes that share a state read their own
// configuration files again: a change of a secret in a file or of a script is visible in no other way.
const Announced = "reload"

// Follow calls reload when the files of a configuration change, with SIGHUP, and when a process that shares
// the state announces a reload, until the returned function is called. On a terminal, SIGHUP says that the
// terminal was closed, and ends the program. reload returns nil after an error, which it must report.
func Follow(
	ctx context.Context, f *cmdutil.Factory, c *hosting.Config, reload func(ctx context.Context) *host.Diff,
) (stop func()) {
	w := newConfigWatch(f, c)
	if w == nil {
		return func() {}
	}
	ctx, cancel := context.WithCancel(ctx)
	hangups := make(chan os.Signal, 1)
	if !f.IO.Err.Terminal && !f.IO.Out.Terminal {
		signal.Notify(hangups, syscall.SIGHUP)
	}
	announced := make(chan struct{}, 1)
	unwatch := state.Watch(c.Pins, Announced, func() {
		select {
		case announced <- struct{}{}:
		default: // reload will be called already
		}
	})
	done := make(chan struct{})
	go func() { // ends with ctx
		defer close(done)
		look := time.NewTicker(configPoll)
		defer look.Stop()
		for {
			select {
			case <-look.C:
				if w.changed() {
					reload(ctx)
				}
			case <-announced:
				reload(ctx)
			case <-hangups:
				if d := reload(ctx); d != nil && d.IsEmpty() {
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
		unwatch()
		<-done
	}
}

// Reload reads the files of a configuration again, and applies them to its host. If they are
// invalid, the previous configuration stays in force. isRead reports whether the host has seen the
// files: then the host reports the error as an event.
func Reload(ctx context.Context, f *cmdutil.Factory, c *hosting.Config, h *host.Host, addr string) (
	d *host.Diff, now *config.File, isRead bool, err error,
) {
	next, invalid, err := hosting.ReadConfig(f, addr)
	if err = errors.Join(append(invalid, err)...); err == nil && c.Extend != nil {
		err = c.Extend(next)
	}
	if err == nil {
		next.Inputs, err = hosting.InputsOf(ctx, f, next)
	}
	if err != nil {
		return nil, nil, false, err
	}
	restore := c.Replace(next)
	if d, err = h.Reload(ctx, next.File); err != nil {
		restore()
		return nil, nil, true, err
	}
	if !d.IsEmpty() {
		hosting.WarnMisspelt(f, next)
	}
	return d, next.File, true, nil
}

// Text returns the error of a reload for a message.
func Text(c *hosting.Config, err error) string {
	text := strings.ReplaceAll(c.Masked(err.Error()), "\n", "; ")
	return term.Shorten(term.CleanLine(text), hosting.MaxEventShown)
}

// PrintReload prints the outcome of a reload. Some settings require program to restart.
func PrintReload(f *cmdutil.Factory, c *hosting.Config, program string, d *host.Diff, err error) {
	if err != nil {
		f.IO.Err.Printf("patchbay: kept the previous configuration: %s", Text(c, err))
		return
	}
	if parts := DiffParts(d); len(parts) > 0 {
		f.IO.Err.Printf("patchbay: reloaded the configuration: %s", strings.Join(parts, "; "))
	}
	if len(d.Restart) > 0 {
		f.IO.Err.Printf("patchbay: %s has changed: restart the %s to use it", strings.Join(d.Restart, ", "), program)
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
