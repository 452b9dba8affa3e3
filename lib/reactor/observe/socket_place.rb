# frozen_string_literal: true

require "etc"
require "socket"
require "tmpdir"

module Reactor
  # The path of the socket of an observed process: NAME.sock in a folder that only its user can enter.
  #
  # @api private
  module SocketPlace
    # A folder or a socket that another user owns or can enter.
    class Untrusted < StandardError
    end

    class << self
      # @param pid [Integer]
      # @return [Array<String>] the paths that are tried. The first one is taken. The path of a socket has at most some 100 bytes, and the
      #   folders that the environment names may be too long.
      def paths(pid)
        runtime = ENV.fetch("XDG_RUNTIME_DIR", "")
        folders = [Dir.tmpdir, Etc.systmpdir].map { |folder| File.join(folder, "reactor-#{Process.euid}") }
        folders.unshift(File.join(runtime, "reactor")) if runtime.start_with?("/") && own?(runtime)
        folders.map { |folder| File.join(folder, "#{pid}.sock") }.select { |path| fits?(path) }
      end

      # Makes the folder if it is not there.
      #
      # @param pid [Integer]
      # @return [String] the path of the socket that the process may open
      # @raise [Untrusted] the folder belongs to another user
      def create(pid)
        path = paths(pid).first
        folder = File.dirname(path)
        begin
          Dir.mkdir(folder, 0o700)
        rescue Errno::EEXIST
          nil
        end
        trust_folder(folder)
        path
      end

      # @param pid [Integer]
      # @return [String, nil] the path of the process's socket; nil if there is none
      # @raise [Untrusted] it, or its folder, belongs to another user
      def find(pid)
        path = paths(pid).find { |candidate| File.symlink?(candidate) || File.exist?(candidate) } or return
        trust_folder(File.dirname(path))
        trust(path, :socket)
        path
      rescue Errno::ENOENT
        nil
      end

      private

      def fits?(path)
        Socket.sockaddr_un(path)
      rescue ArgumentError
        false
      end

      def own?(folder)
        status = File.lstat(folder)
        status.directory? && status.uid == Process.euid
      rescue SystemCallError
        false
      end

      def trust_folder(folder)
        raise Untrusted, "#{folder} can be entered by other users" if trust(folder, :directory).mode.anybits?(0o077)
      end

      def trust(path, type)
        status = File.lstat(path)
        raise Untrusted, "#{path} is no #{type}" unless status.public_send(:"#{type}?")
        raise Untrusted, "#{path} belongs to user #{status.uid}" unless status.uid == Process.euid

        status
      end
    end
  end
end
