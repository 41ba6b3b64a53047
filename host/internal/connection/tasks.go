package connection

import "time"

// maxTasks limits the tasks that keep a connection. Further tasks do not keep it.
const maxTasks = 1000

// tasks contains the tasks that a connection created, by ID, with their expiry times. They run in
// the process of the server, perhaps long after the request that created them.
type tasks map[string]time.Time

// running reports whether a task may still run.
func (t tasks) running(now time.Time) bool {
	running := false
	for id, until := range t {
		if now.After(until) {
			delete(t, id)
			continue
		}
		running = true
	}
	return running
}

// KeepForTask keeps the connection for a task until a time, unless the task ends before: see
// [Conn.EndTask].
func (c *Conn) KeepForTask(id string, until time.Time) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.tasks == nil {
		c.tasks = tasks{}
	}
	if _, ok := c.tasks[id]; ok || len(c.tasks) < maxTasks {
		c.tasks[id] = until
	}
}

// EndTask ends the effect of [Conn.KeepForTask].
func (c *Conn) EndTask(id string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	delete(c.tasks, id)
}
