package main

import (
	"context"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/redis/rueidis"
)

// A redisServer is a process of redis-server, and a proxy between it and each process of the server.
type redisServer struct {
	dir, address string
	cmd          *exec.Cmd
	links        []*proxy
}

// startRedis starts redis-server from the PATH on a free port.
func startRedis(dir string, h *history, processes int) (*redisServer, error) {
	r := &redisServer{dir: filepath.Join(dir, "redis")}
	if err := os.Mkdir(r.dir, 0o700); err != nil {
		return nil, err
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	r.address = l.Addr().String()
	if err := l.Close(); err != nil {
		return nil, err
	}
	if err := r.start(); err != nil {
		return nil, err
	}
	for range processes {
		p, err := startProxy(&proxy{history: h, raw: true})
		if err != nil {
			r.close()
			return nil, err
		}
		p.setTarget(r.address)
		r.links = append(r.links, p)
	}
	return r, nil
}

// start starts the process. It passes each write to the system before it acknowledges the write, so
// a kill of the process loses nothing.
func (r *redisServer) start() error {
	log, err := os.OpenFile(filepath.Join(r.dir, "log"), os.O_WRONLY|os.O_APPEND|os.O_CREATE, 0o600)
	if err != nil {
		return err
	}
	defer log.Close()
	_, port, _ := net.SplitHostPort(r.address)
	r.cmd = exec.Command("redis-server", "--bind", "127.0.0.1", "--port", port, "--dir", r.dir, "--save", "",
		"--appendonly", "yes", "--appendfsync", "no")
	r.cmd.Stdout, r.cmd.Stderr = log, log
	if err := r.cmd.Start(); err != nil {
		return err
	}
	for end := time.Now().Add(startTime); ; time.Sleep(10 * time.Millisecond) {
		conn, err := dial(r.address)
		if err == nil {
			return conn.Close()
		}
		if time.Now().After(end) {
			r.kill()
			return fmt.Errorf("redis-server does not listen: %w; see %s", err, log.Name())
		}
	}
}

func (r *redisServer) kill() {
	_ = r.cmd.Process.Kill()
	_ = r.cmd.Wait()
}

// restart kills and starts the process. With wipe it loses its data.
func (r *redisServer) restart(pause time.Duration, wipe bool) error {
	r.kill()
	time.Sleep(pause)
	if wipe {
		if err := os.RemoveAll(filepath.Join(r.dir, "appendonlydir")); err != nil {
			return err
		}
	}
	return r.start()
}

func (r *redisServer) repair() {
	for _, p := range r.links {
		p.setMode(proxyMode{})
	}
}

func (r *redisServer) close() {
	for _, p := range r.links {
		p.close()
	}
	r.kill()
}

// redisURL returns the URL of the store behind a proxy.
func (p *proxy) redisURL() string { return "redis://" + p.listener.Addr().String() }

// keys returns the keys in the store that must be gone when all clients have gone and everything has
// expired, and the keys that would never be removed. The keys of leases, and of the authorization
// server, stay for long, as docs/stores.md says.
func (r *redisServer) keys(ctx context.Context) (left, endless []string, err error) {
	client, err := rueidis.NewClient(rueidis.ClientOption{InitAddress: []string{r.address}, DisableCache: true})
	if err != nil {
		return nil, nil, err
	}
	defer client.Close()
	all, err := client.Do(ctx, client.B().Keys().Pattern("*").Build()).AsStrSlice()
	for _, key := range all {
		ttl, err := client.Do(ctx, client.B().Pttl().Key(key).Build()).AsInt64()
		if err != nil {
			return nil, nil, err
		}
		switch {
		case strings.HasPrefix(key, "patchbay:auth:"):
			continue
		case ttl == -1:
			endless = append(endless, key)
		}
		if !strings.HasSuffix(key, ":leases") {
			left = append(left, fmt.Sprintf("%s (%v)", key, time.Duration(ttl)*time.Millisecond))
		}
	}
	slices.Sort(left)
	return left, endless, err
}
