package legacy

import "github.com/patchbay-mcp/patchbay/internal/wire"

// A method describes the requests of one method in one revision of the session era.
type method struct {
	served      bool        // clients may send it
	mayAskInput bool        // the core may ask for input
	result      *projection // of the result
}

func methodOf(rev wire.Revision, name string) *method {
	of := projectionOf(rev)
	if m, ok := of.methods()[name]; ok {
		return m
	}
	return &method{served: serves(rev, name), result: of.anyResult}
}

// projectMethods compiles the methods whose results have a shape. Other methods cannot ask for
// input.
func projectMethods(rev wire.Revision) map[string]*method {
	shapes := resultShapes()
	methods := make(map[string]*method, len(shapes))
	for name, fields := range shapes {
		methods[name] = &method{
			served:      serves(rev, name),
			mayAskInput: mayAskInput(name),
			result:      project(rev, resultShape(name, fields)),
		}
	}
	return methods
}

func resultShape(name string, fields []field) *shape {
	m, _ := wire.Latest().Method(name)
	s := &shape{fields: append(fields[:len(fields):len(fields)], resultFields...)}
	if m.Cacheable {
		s.fields = append(s.fields, cacheFields...)
	}
	if mayAskInput(name) {
		s.fields = append(s.fields, inputFields...)
	}
	return s
}

// serves reports whether clients of rev may send the method as a request. Methods that no revision
// knows belong to extensions, and pass to the core, as do those of tasks. Of the methods that only
// older revisions have, three are implemented here.
func serves(rev wire.Revision, name string) bool {
	switch name {
	case wire.MethodLoggingSetLevel, wire.MethodResourcesSubscribe, wire.MethodResourcesUnsubscribe:
		return true
	}
	if m, ok := rev.Method(name); ok {
		_, inCore := wire.Latest().Method(name)
		return inCore && !m.Notification && m.Direction == wire.ClientToServer || isTaskMethod(name)
	}
	return !inAnyRevision(name)
}

// mayAskInput reports whether the modern result of a method may ask for input.
func mayAskInput(method string) bool {
	m, _ := wire.Latest().Method(method)
	return m.MayAskInput || method == wire.MethodTasksResult
}

// inAnyRevision reports whether any revision has the method.
func inAnyRevision(method string) bool {
	for _, rev := range wire.Revisions() {
		if _, ok := rev.Method(method); ok {
			return true
		}
	}
	return false
}
