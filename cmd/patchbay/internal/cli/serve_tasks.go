package cli

import (
	"context"
	"errors"
	"fmt"
	"net"
	"path/filepath"
	"strings"
	"time"

	"github.com/patchbay-mcp/patchbay/cmd/patchbay/internal/demo"
	"github.com/patchbay-mcp/patchbay/ext/tasks"
	"github.com/patchbay-mcp/patchbay/ext/tasks/boltstore"
)

const (
	// tasksInMemory is the value of --tasks for tasks that end with the server.
	tasksInMemory = "memory"
	// maxServers is how many servers for which no address tells them apart have a file each at once. There are as many as
	// clients have started over stdio.
	maxServers = 64
	// storeTimeout is how long a file that belongs to this server alone is waited for: an earlier one may be about to end.
	storeTimeout = 12 * time.Second
	// shutdownTimeout is how long tasks may take to notice that the server ends.
	shutdownTimeout = 5 * time.Second
)

// A servedDemo is the demo server with what it keeps its tasks in.
type servedDemo struct {
	*demo.Demo
	close func() error // of the store
}

// newDemo makes the demo server of a name, and has it take up the tasks of the one that ran under that name before.
func (p *program) newDemo(ctx context.Context, where, name string, opts demo.Options) (*servedDemo, error) {
	store, closeStore, err := p.openTasks(where, name)
	if err != nil {
		return nil, err
	}
	opts.Tasks, opts.Logger = store, p.logger()
	d := &servedDemo{demo.New(version(), &opts), closeStore}
	if err := d.Tasks.Recover(ctx); err != nil {
		return nil, errors.Join(fmt.Errorf("the tasks of an earlier run: %w", err), d.end())
	}
	return d, nil
}

// end ends what runs, and closes the store.
func (d *servedDemo) end() error {
	ctx, cancel := context.WithTimeout(context.Background(), shutdownTimeout)
	defer cancel()
	return errors.Join(d.Tasks.Close(ctx), d.close())
}

// openTasks opens where tasks are kept: the file that --tasks names, else one in the user's directory for what lasts. Where
// nothing can be kept, it is in memory.
func (p *program) openTasks(where, name string) (tasks.Store, func() error, error) {
	nothing := func() error { return nil }
	if where == tasksInMemory {
		return tasks.NewMemory(), nothing, nil
	}
	if where != "" {
		store, err := boltstore.Open(where, &boltstore.Options{Wait: storeTimeout})
		if err != nil {
			return nil, nil, &coded{exitFailure, fmt.Errorf("--tasks: %w", err)}
		}
		return store, store.Close, nil
	}
	store, err := openServerTasks(name)
	if err != nil {
		p.screen.printf("patchbay: tasks do not outlast this run: %s", clean(err.Error()))
		return tasks.NewMemory(), nothing, nil
	}
	return store, store.Close, nil
}

// openServerTasks opens the file of a server that is alone with its name; else the first one that no other server has open.
func openServerTasks(name string) (*boltstore.Store, error) {
	dir, err := stateDir("serve")
	if err != nil {
		return nil, err
	}
	if name != "" {
		return boltstore.Open(filepath.Join(dir, name+".db"), &boltstore.Options{Wait: storeTimeout})
	}
	for i := range maxServers {
		store, err := boltstore.Open(filepath.Join(dir, fmt.Sprintf("tasks-%d.db", i+1)), &boltstore.Options{Wait: -1})
		if !errors.Is(err, boltstore.ErrInUse) {
			return store, err
		}
	}
	return nil, fmt.Errorf("%d servers use the files in %s", maxServers, dir)
}

// nameOf names a server by its address, which no other has at the same time; not, if it has another one each time.
func addrName(addr string, bound net.Addr) string {
	if _, port, err := net.SplitHostPort(addr); err != nil || port == "0" {
		return ""
	}
	return "at-" + strings.NewReplacer(":", "-", "[", "", "]", "", "%", "-").Replace(bound.String())
}
