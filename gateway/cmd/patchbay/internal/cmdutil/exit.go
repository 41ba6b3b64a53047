package cmdutil

// An Exit closes what commands opened when the program ends.
type Exit struct{ phases [exitPhases][]func() }

// Phases of an Exit, in the order in which they run.
const (
	ExitHosts  = iota // with the processes of their servers
	ExitExport        // sends the last traces and metrics
	ExitLogs          // audit logs, to which hosts write
	ExitLocks         // locks of sockets
	exitPhases
)

// Add adds a function to a phase.
func (e *Exit) Add(phase int, end func()) { e.phases[phase] = append(e.phases[phase], end) }

// Run calls the functions of all phases once.
func (e *Exit) Run() {
	for _, phase := range e.phases {
		for _, end := range phase {
			end()
		}
	}
	e.phases = [exitPhases][]func(){}
}
