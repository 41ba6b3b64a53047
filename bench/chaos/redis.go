package main

import (
	"context"
	"errors"
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

// Engines of the store that processes share.
const (
	engineSingle   = "single"
	engineSentinel = "sentinel"
	engineCluster  = "cluster"
)

// A redisStore is what the processes of the server share: one Redis, a Redis with a replica and three
// Sentinels, or a Cluster.
type redisStore struct {
	engine string
	host   string // the address at which the nodes listen
	nodes  []*redisNode
	others []*redisNode // Sentinels
	links  []*proxy     // between each process and the only node; nil for the other engines
	faults []faultKind
}

// startRedis starts the nodes of an engine on free ports, with redis-server from the PATH.
func startRedis(engine, dir string, s *session) (r *redisStore, err error) {
	r = &redisStore{engine: engine, host: s.network.host()}
	if err := os.MkdirAll(filepath.Join(dir, "redis"), 0o700); err != nil {
		return nil, err
	}
	dir = filepath.Join(dir, "redis")
	switch engine {
	case engineSingle:
		err = r.startSingle(dir, s)
	case engineSentinel:
		err = r.startSentinels(dir)
	case engineCluster:
		err = r.startCluster(dir)
	default:
		err = fmt.Errorf("invalid engine %q: must be single, sentinel or cluster", engine)
	}
	if err != nil {
		r.close()
		return nil, err
	}
	return r, nil
}

func (r *redisStore) startSingle(dir string, s *session) error {
	r.faults = singleFaults
	node, err := r.addNode(dir)
	if err == nil && s.clocks {
		r.faults = slices.Concat(redisClockFaults, r.faults)
		if node.clock, err = newClock(filepath.Join(dir, "clock")); err == nil {
			err = node.restart(0, false)
		}
	}
	for place := 0; place < s.replicas && err == nil; place++ {
		var p *proxy
		if p, err = startProxy(&proxy{history: s.history, raw: true, host: s.network.gateway(place)}); err == nil {
			p.setTarget(node.address)
			r.links = append(r.links, p)
		}
	}
	return err
}

// addNode starts another node that contains data.
func (r *redisStore) addNode(dir string, args ...string) (*redisNode, error) {
	n := &redisNode{dir: filepath.Join(dir, fmt.Sprint(len(r.nodes))), data: true, address: freeAddress(r.host)}
	n.args = append([]string{"--save", "", "--appendonly", "yes", "--appendfsync", "no"}, args...)
	r.nodes = append(r.nodes, n)
	return n, n.start()
}

func freeAddress(host string) string {
	l, err := net.Listen("tcp", net.JoinHostPort(host, "0"))
	if err != nil {
		panic(err) // the host has free ports
	}
	defer l.Close()
	return l.Addr().String()
}

// A redisNode is a process of redis-server.
type redisNode struct {
	dir, address string
	args         []string
	data         bool       // and not a Sentinel, whose only argument is its configuration
	master       *redisNode // that it replicates when it starts; may be nil
	clock        *clock     // nil for that of the machine
	cmd          *exec.Cmd
}

func (n *redisNode) port() string {
	_, port, _ := net.SplitHostPort(n.address)
	return port
}

// start starts the process. It passes each write to the system before it acknowledges the write, so
// a kill of the process loses nothing.
func (n *redisNode) start() error {
	if err := os.MkdirAll(n.dir, 0o700); err != nil {
		return err
	}
	log, err := os.OpenFile(filepath.Join(n.dir, "log"), os.O_WRONLY|os.O_APPEND|os.O_CREATE, 0o600)
	if err != nil {
		return err
	}
	defer log.Close()
	host, port, _ := net.SplitHostPort(n.address)
	args := append(slices.Clone(n.args), "--bind", host, "--port", port, "--protected-mode", "no")
	if n.data {
		args = append(args, "--dir", n.dir)
	}
	if n.master != nil {
		args = append(args, "--replicaof", host, n.master.port())
	}
	n.cmd = exec.Command("redis-server", args...)
	n.cmd.Env, n.cmd.Stdout, n.cmd.Stderr = n.clock.environment(), log, log
	if err := n.cmd.Start(); err != nil {
		return err
	}
	return waitUntil(startTime, func() error {
		conn, err := dial(n.address)
		if err != nil {
			return fmt.Errorf("redis-server does not listen: %w; see %s", err, log.Name())
		}
		return conn.Close()
	})
}

// waitUntil polls until done returns no error, and returns its last error after the limit.
func waitUntil(limit time.Duration, done func() error) error {
	for end := time.Now().Add(limit); ; time.Sleep(20 * time.Millisecond) {
		if err := done(); err == nil || time.Now().After(end) {
			return err
		}
	}
}

func (n *redisNode) kill() {
	if n.cmd == nil {
		return
	}
	_ = n.cmd.Process.Kill()
	_ = n.cmd.Wait()
}

// restart kills and starts the process. With wipe it loses its data.
func (n *redisNode) restart(pause time.Duration, wipe bool) error {
	n.kill()
	time.Sleep(pause)
	if wipe {
		if err := os.RemoveAll(filepath.Join(n.dir, "appendonlydir")); err != nil {
			return err
		}
	}
	return n.start()
}

// pause stops the process until f returns.
func (n *redisNode) pause(f func() error) error {
	if signalStop == nil {
		return nil
	}
	if err := n.cmd.Process.Signal(signalStop); err != nil {
		return err
	}
	return errors.Join(f(), n.cmd.Process.Signal(signalContinue))
}

// do sends a command to the node and returns the reply.
func (n *redisNode) do(args ...string) (reply rueidis.RedisMessage, err error) {
	client, err := rueidis.NewClient(rueidis.ClientOption{InitAddress: []string{n.address}, DisableCache: true,
		ForceSingleClient: true, DisableRetry: true, Dialer: net.Dialer{Timeout: time.Second}})
	if err != nil {
		return reply, err
	}
	defer client.Close()
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
	defer cancel()
	return client.Do(ctx, client.B().Arbitrary(args...).Build()).ToMessage()
}

// text is do for a command whose reply is a text.
func (n *redisNode) text(args ...string) (string, error) {
	reply, err := n.do(args...)
	if err != nil {
		return "", err
	}
	return reply.ToString()
}

// has returns an error unless the reply to a command contains all texts.
func (n *redisNode) has(command string, texts ...string) error {
	got, err := n.text(strings.Fields(command)...)
	for _, text := range texts {
		if err == nil && !strings.Contains(got, text) {
			err = fmt.Errorf("%s of %s lacks %q: %s", command, n.address, text, got)
		}
	}
	return err
}

// isMaster reports whether a node accepts writes.
func (n *redisNode) isMaster() bool { return n.has("INFO replication", "role:master") == nil }

func (r *redisStore) repair() {
	for _, p := range r.links {
		p.setMode(proxyMode{})
	}
}

func (r *redisStore) close() {
	for _, p := range r.links {
		p.close()
	}
	for _, n := range append(r.others, r.nodes...) {
		n.kill()
	}
}

// url returns the URL of the store for a process.
func (r *redisStore) url(place int) string {
	switch r.engine {
	case engineSentinel:
		return "redis://" + r.others[0].address + "?addr=" + r.others[1].address + "&addr=" + r.others[2].address +
			"&master_set=" + masterName
	case engineCluster:
		return "redis://" + r.nodes[0].address + "?addr=" + r.nodes[1].address + "&addr=" + r.nodes[2].address
	}
	return "redis://" + r.links[place].listener.Addr().String()
}

// keys returns the keys in the store that must be gone when all clients have gone and everything has
// expired, and the keys that would never be removed. The keys of leases, and of the authorization
// server, stay for long, as docs/stores.md says.
func (r *redisStore) keys() (left, endless []string, err error) {
	for _, n := range r.nodes {
		if !n.isMaster() {
			continue // the masters tell the others which keys have expired
		}
		reply, err := n.do("KEYS", "*")
		if err != nil {
			return nil, nil, err
		}
		all, err := reply.AsStrSlice()
		if err != nil {
			return nil, nil, err
		}
		for _, key := range all {
			if strings.HasPrefix(key, "patchbay:auth:") {
				continue
			}
			reply, err := n.do("PTTL", key)
			if err != nil {
				return nil, nil, err
			}
			ttl, err := reply.AsInt64()
			if err != nil {
				return nil, nil, err
			}
			if ttl == -1 {
				endless = append(endless, key)
			}
			if !strings.HasSuffix(key, ":leases") {
				left = append(left, fmt.Sprintf("%s (%v)", key, time.Duration(ttl)*time.Millisecond))
			}
		}
	}
	slices.Sort(left)
	return left, endless, err
}
