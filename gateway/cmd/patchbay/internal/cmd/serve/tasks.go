package serve

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net"
	"path/filepath"
	"strings"
	"time"

	"github.com/patchbay-mcp/patchbay/ext/tasks"
	"github.com/patchbay-mcp/patchbay/gateway/cmd/patchbay/internal/build"
	"github.com/patchbay-mcp/patchbay/gateway/cmd/patchbay/internal/cmdutil"
	"github.com/patchbay-mcp/patchbay/gateway/cmd/patchbay/internal/demo"
	"github.com/patchbay-mcp/patchbay/gateway/cmd/patchbay/internal/exit"
	"github.com/patchbay-mcp/patchbay/gateway/cmd/patchbay/internal/hosting"
	"github.com/patchbay-mcp/patchbay/gateway/cmd/patchbay/internal/term"
	"github.com/patchbay-mcp/patchbay/gateway/cmd/patchbay/internal/userdir"
	"github.com/patchbay-mcp/patchbay/mcphttp"
	"github.com/patchbay-mcp/patchbay/stores/bolt"
)

const (
	// tasksInMemory is the value of --tasks for a store in memory.
	tasksInMemory = "memory"
	// maxServers bounds the files of servers without a fixed address, such as those on stdio.
	maxServers = 64
	// storeTimeout bounds the wait for the file of an address: the previous server may be exiting.
	storeTimeout = 12 * time.Second
	// shutdownTimeout bounds the wait for tasks to stop.
	shutdownTimeout = 5 * time.Second
)

// A servedDemo is the demo server with the store of its tasks.
type servedDemo struct {
	*demo.Demo
	close func() error // of the store
}

// shareDemo makes the demo server keep its state in the stores of --store, so that each process can serve
// each request. All processes must use the same name for their tasks.
func shareDemo(stores *hosting.Stores, o *Options, d *demo.Options, served *mcphttp.Options) {
	o.Tasks = cmp.Or(o.Tasks, stores.File)
	stores.Configure(served)
	s := stores.Durable()
	if s == nil {
		return
	}
	d.StateKeys, d.StateStore, d.State = stores.StateKeys(), s.States(), s.HostState()
	if o.Tasks == "" {
		d.Tasks = s.Tasks("patchbay-demo")
	}
}

// newDemo returns the demo server and recovers its stored tasks. where is the value of --tasks, for a demo
// server without a store of tasks, and name selects the default file.
func newDemo(ctx context.Context, f *cmdutil.Factory, where, name string, opts demo.Options) (*servedDemo, error) {
	closeStore := func() error { return nil }
	if opts.Tasks == nil {
		var err error
		if opts.Tasks, closeStore, err = openTasks(f, where, name); err != nil {
			return nil, err
		}
	}
	opts.Logger = f.IO.Logger()
	d := &servedDemo{demo.New(build.Version(), &opts), closeStore}
	if err := d.Tasks.Recover(ctx); err != nil {
		return nil, errors.Join(fmt.Errorf("recover tasks: %w", err), d.end())
	}
	return d, nil
}

func (d *servedDemo) end() error {
	ctx, cancel := context.WithTimeout(context.Background(), shutdownTimeout)
	defer cancel()
	return errors.Join(d.Tasks.Close(ctx), d.close())
}

// openTasks opens the store of --tasks. The default is a file, or memory if that fails.
func openTasks(f *cmdutil.Factory, where, name string) (tasks.Store, func() error, error) {
	noClose := func() error { return nil }
	if where == tasksInMemory {
		return tasks.NewMemory(), noClose, nil
	}
	if where != "" {
		store, err := bolt.OpenTasks(where, &bolt.Options{Wait: storeTimeout})
		if err != nil {
			return nil, nil, &exit.Error{Code: exit.Failure, Err: fmt.Errorf("--tasks: %w", err)}
		}
		return store, store.Close, nil
	}
	store, err := openServerTasks(name)
	if err != nil {
		f.IO.Err.Printf("patchbay: tasks are kept in memory only: %s", term.Clean(err.Error()))
		return tasks.NewMemory(), noClose, nil
	}
	return store, store.Close, nil
}

// openServerTasks opens the file of a named server, or the first file that is not in use.
func openServerTasks(name string) (*bolt.TaskStore, error) {
	dir, err := userdir.Dir("serve")
	if err != nil {
		return nil, err
	}
	if name != "" {
		return bolt.OpenTasks(filepath.Join(dir, name+".db"), &bolt.Options{Wait: storeTimeout})
	}
	for i := range maxServers {
		store, err := bolt.OpenTasks(filepath.Join(dir, fmt.Sprintf("tasks-%d.db", i+1)), &bolt.Options{Wait: -1})
		if !errors.Is(err, bolt.ErrInUse) {
			return store, err
		}
	}
	return nil, fmt.Errorf("all %d files in %s are in use", maxServers, dir)
}

// addrName returns a file name for an address, or "" if its port changes with each start.
func addrName(addr string, bound net.Addr) string {
	if _, port, err := net.SplitHostPort(addr); err != nil || port == "0" {
		return ""
	}
	return "at-" + strings.NewReplacer(":", "-", "[", "", "]", "", "%", "-").Replace(bound.String())
}
