package legacy

import "github.com/patchbay-mcp/patchbay/internal/wire"

// A method is what a revision of the session era says about the requests of one name.
type method struct {
	served      bool        // clients may send them
	mayAskInput bool        // the core may ask for input before it hasResponseMember
	result      *projection // of the result
}

func methodOf(rev wire.Revision, name string) *method {
	of := projectionOf(rev)
	if m, ok := of.methods()[name]; ok {
		return m
	}
	return &method{served: serves(rev, name), result: of.anyResult}
}

// projectMethods compiles the methods whose results have a shape. Others cannot ask for input.
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

// serves reports whether clients of rev may send the method as a request. Methods that no revision knows belong
// to extensions: they are the core's to judge, as are those of tasks. Other methods that only older revisions know are
// answered here or not at all.
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

// mayAskInput reports whether the modern form of a method's result may be that it asks for input.
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
