// Command chaos tests a server process under faults, or several processes that share a Redis server. It
// starts an MCP server with an authorization server and lets workers call it through a proxy. Round
// after round, a nemesis kills, stops and restarts the processes, and cuts, stalls and repeats the
// traffic of the proxy. A checker judges the history of all calls: nothing is lost, doubled or
// crossed, in order, alive, and without residue. See the section in bench/README.md.
package main

import (
	"cmp"
	"flag"
	"fmt"
	"os"
	"time"
)

func main() {
	if ok, err := runRole(); ok {
		if err != nil {
			fmt.Fprintln(os.Stderr, "server:", err)
			os.Exit(1)
		}
		return
	}
	if config := os.Getenv(childVariable); config != "" {
		if err := serveChild(config); err != nil {
			fmt.Fprintln(os.Stderr, "server:", err)
			os.Exit(1)
		}
		return
	}
	rounds := flag.Int("rounds", 20, "number of `rounds`")
	seed := flag.Uint64("seed", uint64(time.Now().UnixNano()), "`seed` of the faults and calls")
	gateway := flag.Bool("gateway", false, "test a gateway in front of four servers, in place of one server")
	replicas := flag.Bool("replicas", false, "test three processes of the server that share a Redis")
	engine := flag.String("engine", engineSingle, "Redis of the replicas: single, sentinel or cluster")
	taskStore := flag.String("tasks", "", "postgres: keep the tasks of the replicas in PostgreSQL")
	spaces := flag.Bool("netns", false, "give each replica a network namespace and drop packets; needs root")
	clocks := flag.Bool("clocks", false, "step the clocks of a single Redis and of PostgreSQL; needs cc")
	every := flag.Int("every", 0, "`rounds` between two checks of the residue, 20 or 50 by default")
	dir := flag.String("dir", "", "`folder` for the files of the server, which are kept if a rule was broken")
	flag.Parse()
	start, o := run, options{rounds: *rounds, seed: *seed, dir: *dir, every: 50, out: os.Stdout}
	switch {
	case *gateway:
		start = runGateway
	case *replicas:
		o.replicas, o.every, o.expire = replicaCount, 20, true
		o.engine, o.tasks, o.spaces, o.clocks = *engine, *taskStore, *spaces, *clocks
	}
	o.every = cmp.Or(*every, o.every)
	passed, err := start(o)
	if err != nil {
		fmt.Fprintln(os.Stderr, "chaos:", err)
	}
	if err != nil || !passed {
		os.Exit(1)
	}
}
