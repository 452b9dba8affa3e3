# frozen_string_literal: true

require "etc"
require "fileutils"
require "socket"
require "tmpdir"
require_relative "time_limit"

# Real servers for the tests. Each has a directory and a free port of the loopback interface, runs in the foreground, and is
# stopped by its PID.
class RealServer
  # Seconds a server may take to start, and to stop.
  TEST_TIMEOUT = 60

  # Another process may take the chosen port before the server does.
  ATTEMPTS = 5

  class Failed < RuntimeError; end

  class << self
    # @return [String, nil] why this server cannot be started here
    def absence = (program ? nil : "#{self::PROGRAM} is not installed (bin/setup --servers)")

    # The path of the program: the newest version in OTHER_DIRECTORIES if it is not in the PATH.
    def program
      directories = [*ENV.fetch("PATH", "").split(":"), "/usr/sbin", "/usr/local/sbin", *self::OTHER_DIRECTORIES.flat_map { |glob| Dir[glob].sort.reverse }]
      directories.map { |directory| File.join(directory, self::PROGRAM) }.find { |path| File.executable?(path) }
    end

    # Starts a server, passes it to the block, and always stops it.
    def run(...)
      server = start(...)
      yield server
    ensure
      server&.stop
    end

    # @return [RealServer] a running server
    def start(...)
      attempt = 1
      begin
        server = new(...)
        server.start
        started = true
      rescue Failed => error
        server.stop
        raise unless error.message.match?(/address already in use|eaddrinuse/i) && (attempt += 1) <= ATTEMPTS

        retry
      end
      server
    ensure
      server&.stop unless started
    end
  end

  OTHER_DIRECTORIES = [].freeze

  attr_reader :port, :pid, :directory

  def initialize
    @directory = Dir.mktmpdir("reactor-#{self.class::PROGRAM}")
    @port = TCPServer.open("127.0.0.1", 0) { |server| server.addr[1] }
  end

  def start
    prepare
    @pid = spawn(*command, in: File::NULL, out: log, err: %i[child out], pgroup: true, chdir: directory)
    limit = TimeLimit.new(TEST_TIMEOUT, @pid)
    until ready?
      raise Failed, "#{self.class::PROGRAM} does not start:\n#{File.read(log)}" if (limit.over? && !ready?) || ended?

      sleep 0.02
    end
  end

  def kill
    Process.kill(:KILL, -@pid)
    Process.wait(@pid)
    @pid = nil
  end

  def stop
    return unless @pid && !ended?

    Process.kill(self.class::STOP_SIGNAL, @pid)
    limit = TimeLimit.new(TEST_TIMEOUT, @pid)
    sleep 0.01 until ended? || limit.over?
    kill if @pid
  ensure
    FileUtils.rm_rf(directory)
  end

  STOP_SIGNAL = :TERM

  def log = File.join(directory, "log")

  private

  def prepare = nil

  def ready?
    TCPSocket.open("127.0.0.1", port).close
    true
  rescue SystemCallError
    false
  end

  def ended?
    @pid = nil if @pid && Process.wait(@pid, Process::WNOHANG)
    @pid.nil?
  end

  def write(name, text) = File.join(directory, name).tap { |path| File.write(path, text) }
end

class RedisServer < RealServer
  PROGRAM = "redis-server"

  private

  def command = [self.class.program, "--bind", "127.0.0.1", "--port", port.to_s, "--save", "", "--maxclients", "500"]
end

class PostgresServer < RealServer
  PROGRAM = "postgres"
  OTHER_DIRECTORIES = ["/usr/lib/postgresql/*/bin"].freeze
  STOP_SIGNAL = :INT # "fast" shutdown: open connections are closed

  def options = { host: "127.0.0.1", port: port, user: "tester", dbname: "postgres" }

  private

  # PostgreSQL refuses to run as root.
  def unprivileged = Process.uid.zero? ? ["setpriv", "--reuid=postgres", "--regid=postgres", "--clear-groups"] : []

  def prepare
    File.write(log, "")
    FileUtils.chown_R("postgres", "postgres", directory) if Process.uid.zero?
    initdb = File.join(File.dirname(self.class.program), "initdb")
    made = system(*unprivileged, initdb, "-D", data, "-U", "tester", "-A", "trust", "--no-sync", chdir: directory, out: log, err: %i[child out])
    raise Failed, "initdb failed:\n#{File.read(log)}" unless made
  end

  def data = File.join(directory, "data")

  def command
    settings = { listen_addresses: "127.0.0.1", port: port, unix_socket_directories: "", max_connections: 130, fsync: "off", shared_buffers: "16MB" }
    [*unprivileged, self.class.program, "-D", data, *settings.flat_map { |name, value| ["-c", "#{name}=#{value}"] }]
  end

  # The port is open before the server accepts queries.
  def ready? = super && File.read(log).include?("ready to accept connections")
end

# Serves a file at a limited rate (/file), also over TLS (tls_port), and is a proxy of another server (/upstream/).
class NginxServer < RealServer
  PROGRAM = "nginx"
  SIZE = 200_000
  # Bytes per second: the file arrives in several parts.
  RATE = SIZE * 4

  attr_reader :tls_port

  def initialize(upstream: nil, certificate: nil, key: nil)
    super()
    @upstream, @certificate, @key = upstream, certificate, key
    @tls_port = TCPServer.open("127.0.0.1", 0) { |server| server.addr[1] }
  end

  def content = @content ||= Array.new(SIZE / 10) { |i| format("%09d\n", i) }.join

  private

  def prepare
    write("file", content)
    write("certificate.pem", @certificate.to_pem) if @certificate
    write("key.pem", @key.to_pem) if @key
    write("nginx.conf", configuration)
    FileUtils.chmod(0o755, directory)
  end

  def command = [self.class.program, "-p", directory, "-c", "nginx.conf", "-e", "error.log"]

  def configuration
    <<~CONF
      daemon off;
      master_process off;
      pid nginx.pid;
      events { worker_connections 1000; }
      http {
        access_log off;
        #{%w[client_body proxy fastcgi uwsgi scgi].map { |name| "#{name}_temp_path #{name};" }.join("\n  ")}
        server {
          listen 127.0.0.1:#{port} backlog=511;
          #{"listen 127.0.0.1:#{tls_port} ssl backlog=511; ssl_certificate certificate.pem; ssl_certificate_key key.pem;" if @certificate}
          root #{directory};
          location = /file { limit_rate #{RATE}; }
          #{"location /upstream/ { proxy_pass http://127.0.0.1:#{@upstream}/; proxy_http_version 1.1; }" if @upstream}
        }
      }
    CONF
  end
end
