# frozen_string_literal: true

require_relative "../ruby/servers"

# The servers of bin/check gems that the tests do not need.
module Gems
  # What a program tells of its version.
  module Version
    OPTIONS = Hash.new("--version").merge("nginx" => "-V", "sshd" => "-V", "slapd" => "-V").freeze

    # @return [String, nil]
    def version = IO.popen([program, OPTIONS[self::PROGRAM]], err: %i[child out], &:read)[/\d+\.\d+(\.\d+)*(p\d+)?/]
  end
  RealServer.extend(Version)

  # Answers every request.
  class Nginx < NginxServer
    private

    def configuration = super.sub("location = /file", "location / { return 200 \"ok\"; }\n      location = /file")
  end

  class Memcached < RealServer
    PROGRAM = "memcached"

    private

    def command = [self.class.program, "-l", "127.0.0.1", "-p", port.to_s, "-u", "nobody"]
  end

  class MariaDB < RealServer
    PROGRAM = "mariadbd"

    private

    # Without accounts it needs no tables.
    def prepare = FileUtils.mkdir_p(File.join(data, "mysql"))

    def data = File.join(directory, "data")

    def command
      [self.class.program, "--no-defaults", "--datadir=#{data}", "--port=#{port}", "--bind-address=127.0.0.1", "--socket=#{directory}/socket",
       "--pid-file=#{directory}/pid", "--user=root", "--skip-grant-tables", "--skip-name-resolve"]
    end

    def ready? = super && File.read(log).include?("ready for connections")
  end

  class RabbitMQ < RealServer
    PROGRAM = "rabbitmq-server"

    class << self
      # Debian's program of this name changes the user first.
      def program = Dir["/usr/lib/rabbitmq/bin/rabbitmq-server"].first || super

      def version = Dir["/usr/lib/rabbitmq/lib/rabbitmq_server-*"].first.to_s[/[\d.]+\z/]
    end

    def stop
      super
    ensure
      system({ "ERL_EPMD_PORT" => @epmd.to_s }, "epmd", "-kill", out: File::NULL, err: File::NULL)
    end

    private

    def prepare
      @epmd, distribution = Array.new(2) { TCPServer.open("127.0.0.1", 0) { |server| server.addr[1] } }
      @environment = {
        "HOME" => directory, "RABBITMQ_NODENAME" => "gems@localhost", "RABBITMQ_NODE_IP_ADDRESS" => "127.0.0.1", "RABBITMQ_NODE_PORT" => port.to_s,
        "RABBITMQ_DIST_PORT" => distribution.to_s, "RABBITMQ_MNESIA_BASE" => directory, "RABBITMQ_LOG_BASE" => directory, "RABBITMQ_LOGS" => "-",
        "RABBITMQ_CONF_ENV_FILE" => "/nonexistent", "RABBITMQ_ENABLED_PLUGINS_FILE" => write("plugins", "[]."),
        "RABBITMQ_CONFIG_FILE" => write("rabbitmq.conf", ""), "ERL_EPMD_PORT" => @epmd.to_s, "ERL_EPMD_ADDRESS" => "127.0.0.1",
        "ERL_EPMD_RELAXED_COMMAND_CHECK" => "1" # it may be ended while a node is known to it
      }
    end

    def command = ["env", *@environment.map { |name, value| "#{name}=#{value}" }, self.class.program]

    def ready? = super && File.read(log).include?("Server startup complete")
  end

  class Dovecot < RealServer
    PROGRAM = "dovecot"

    private

    def prepare
      FileUtils.mkdir_p([File.join(directory, "run"), File.join(directory, "mail")])
      FileUtils.chmod_R(0o777, directory)
      version = self.class.version[/\d+\.\d+/]
      write("dovecot.conf", (Gem::Version.new(version) < Gem::Version.new("2.4") ? settings_of_2_3 : settings_of_2_4(version)) + <<~CONF)
        base_dir = #{directory}/run
        state_dir = #{directory}/run
        log_path = /dev/stderr
        protocols = imap
        ssl = no
        mail_uid = nobody
        mail_gid = nogroup
        first_valid_uid = 1
        first_valid_gid = 1
        mail_max_userip_connections = 100
      CONF
    end

    def settings_of_2_3
      <<~CONF
        disable_plaintext_auth = no
        mail_location = maildir:#{directory}/mail
        passdb {
          driver = static
          args = password=secret
        }
        userdb {
          driver = static
          args = uid=nobody gid=nogroup home=#{directory}/mail
        }
        #{login("address")}
      CONF
    end

    def settings_of_2_4(version)
      <<~CONF
        dovecot_config_version = #{version}.0
        dovecot_storage_version = #{version}.0
        auth_allow_cleartext = yes
        mail_driver = maildir
        mail_path = #{directory}/mail
        passdb static {
          password = secret
        }
        userdb static {
          fields {
            uid = nobody
            gid = nogroup
            home = #{directory}/mail
          }
        }
        #{login("listen")}
      CONF
    end

    def login(address)
      <<~CONF
        service imap-login {
          inet_listener imap {
            #{address} = 127.0.0.1
            port = #{port}
          }
          inet_listener imaps {
            port = 0
          }
        }
      CONF
    end

    def command = [self.class.program, "-F", "-c", File.join(directory, "dovecot.conf")]
  end

  class SSH < RealServer
    PROGRAM = "sshd"

    private

    def prepare
      FileUtils.mkdir_p("/run/sshd")
      %w[host client].each { |name| system("ssh-keygen", "-q", "-t", "rsa", "-N", "", "-f", File.join(directory, name), out: log, err: %i[child out]) }
      FileUtils.cp(File.join(directory, "client.pub"), File.join(directory, "authorized"))
      # With SHLVL=2, bash does not read the user's own configuration.
      write("sshd_config", <<~CONF)
        ListenAddress 127.0.0.1
        Port #{port}
        HostKey #{directory}/host
        PidFile none
        AuthorizedKeysFile #{directory}/authorized
        StrictModes no
        UsePAM no
        PermitRootLogin yes
        MaxStartups 100
        PerSourcePenalties no
        SetEnv SHLVL=2
        Subsystem sftp /bin/bash #{directory}/sftp
      CONF
      # Each session asks the server behind the gate first. The file has its port.
      write("sftp", "/bin/bash #{directory}/visit $(cat #{directory}/gate) > #{directory}/answer.$$ && exec /usr/lib/openssh/sftp-server\n")
      write("visit", "exec 3<>/dev/tcp/127.0.0.1/$1; printf 'GET /#{Gate::WORD} HTTP/1.0\\r\\n\\r\\n' >&3; cat <&3\n")
    end

    def command = [self.class.program, "-D", "-e", "-f", File.join(directory, "sshd_config")]
  end

  class LDAP < RealServer
    PROGRAM = "slapd"

    private

    def prepare
      FileUtils.mkdir(File.join(directory, "data"))
      write("slapd.conf", <<~CONF)
        include /etc/ldap/schema/core.schema
        pidfile #{directory}/pid
        database ldif
        suffix "dc=test"
        directory #{directory}/data
      CONF
    end

    def command = [self.class.program, "-d", "0", "-h", "ldap://127.0.0.1:#{port}", "-f", File.join(directory, "slapd.conf")]
  end

  # aiosmtpd, a server in Python.
  class SMTP < RealServer
    PROGRAM = "aiosmtpd"

    private

    def command = [self.class.program, "-n", "-c", "aiosmtpd.handlers.Sink", "-l", "127.0.0.1:#{port}"]
  end

  # The server of the grpc gem, on threads in a process of its own.
  class GRPCServer < RealServer
    PROGRAM = "ruby"

    def self.program = RbConfig.ruby
    def self.version = nil

    private

    def command = [self.class.program, File.join(__dir__, "grpc_server.rb"), port.to_s]
  end

  SERVERS = {
    nginx: Nginx, postgres: PostgresServer, redis: RedisServer, memcached: Memcached, mariadb: MariaDB, rabbitmq: RabbitMQ,
    dovecot: Dovecot, ssh: SSH, ldap: LDAP, smtp: SMTP, grpc: GRPCServer
  }.freeze
end
