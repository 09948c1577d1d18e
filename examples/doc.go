// Package examples shows resources that check redlock's fencing token, with a real SQL database and with an object
// store's conditional put. A lock cannot stop a holder that slept between its last look at the lock and its write; a
// resource that refuses smaller tokens than it has seen can.
package examples
