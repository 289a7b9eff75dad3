"""Hadoop's local file system without its processes.

Without its native library, Hadoop starts `chmod` for each file and directory that it makes, and `readlink` four times for each
that it renames: with Hadoop's checksum beside it, ten processes for a file of Delta's log.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from delta_variant import jvm

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import SparkSession

_SOURCES = {
    "RawLocalFiles": """
import java.io.IOException;
import java.nio.file.Files;
import java.nio.file.attribute.PosixFilePermissions;
import org.apache.hadoop.fs.*;
import org.apache.hadoop.fs.permission.FsPermission;

public class RawLocalFiles extends RawLocalFileSystem {
  public void setPermission(Path path, FsPermission permission) throws IOException {
    Files.setPosixFilePermissions(pathToFile(path).toPath(), PosixFilePermissions.fromString(permission.toString()));
  }

  public FileStatus getFileLinkStatus(Path path) throws IOException {
    return Files.isSymbolicLink(pathToFile(path).toPath()) ? super.getFileLinkStatus(path) : getFileStatus(path);
  }
}
""",
    "LocalFiles": """
import org.apache.hadoop.fs.LocalFileSystem;

public class LocalFiles extends LocalFileSystem {
  public LocalFiles() { super(new RawLocalFiles()); }
}
""",
    "RawLocalContext": """
import java.net.URI;
import org.apache.hadoop.conf.Configuration;
import org.apache.hadoop.fs.*;
import org.apache.hadoop.fs.local.LocalConfigKeys;

public class RawLocalContext extends DelegateToFileSystem {
  public RawLocalContext(Configuration settings) throws Exception {
    super(FsConstants.LOCAL_FS_URI, new RawLocalFiles(), settings, "file", false);
  }

  public int getUriDefaultPort() { return -1; }
  public FsServerDefaults getServerDefaults(Path path) throws java.io.IOException {
    return LocalConfigKeys.getServerDefaults();
  }
  public FsServerDefaults getServerDefaults() throws java.io.IOException { return LocalConfigKeys.getServerDefaults(); }
  public boolean isValidName(String name) { return true; }
}
""",
    "LocalContext": """
import java.net.URI;
import org.apache.hadoop.conf.Configuration;
import org.apache.hadoop.fs.ChecksumFs;

public class LocalContext extends ChecksumFs {
  public LocalContext(URI uri, Configuration settings) throws Exception { super(new RawLocalContext(settings)); }
}
""",
}


def install(spark: SparkSession, folder: Path) -> None:
    """Compiles the classes into a folder, and has the files of this application opened by them."""
    loader = jvm.static(spark, "java.lang.Thread").currentThread().getContextClassLoader()
    loader.addURL(jvm.static(spark, "java.io.File")(str(folder)).toURI().toURL())
    for name, source in _SOURCES.items():
        compiler = jvm.static(spark, "org.codehaus.janino.SimpleCompiler")()
        compiler.setParentClassLoader(loader)
        compiler.cook(source)
        (folder / f"{name}.class").write_bytes(compiler.getBytecodes()[name])
    settings = spark.sparkContext._jsc.hadoopConfiguration()
    settings.set("fs.file.impl", "LocalFiles")
    settings.set("fs.AbstractFileSystem.file.impl", "LocalContext")
    jvm.static(spark, "org.apache.hadoop.fs.FileSystem").closeAll()
