// Package deploy holds what runs Sluice beside other systems: the dashboard of
// Grafana, the scrape configuration and alerts of Prometheus, and the container's
// configuration. docker-compose.yml and Dockerfile in the root put them together.
//
// There is no code here, and nothing to import; the tests keep the files in step
// with the program: every metric that a panel or an alert asks for is served, every
// file that a container mounts exists, every path that the image is built from, too.
package deploy
